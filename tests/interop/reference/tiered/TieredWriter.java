import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.remoting.Configuration;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.plugin.MessageStorePluginContext;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.tieredstore.TieredMessageStore;

/** Writes a store whose messages are moved to tiered storage in files: TieredWriter STORE TIERED COUNT. */
class TieredWriter {
    public static void main(String[] args) throws Exception {
        String root = new File(args[0]).getAbsolutePath();
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + File.separator + "commitlog");
        config.setMappedFileSizeCommitLog(65536);
        config.setMappedFileSizeConsumeQueue(2000);
        config.setMaxHashSlotNum(100);
        config.setMaxIndexNum(400);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setEnableCompaction(false);
        config.setCleanFileForciblyEnable(false);
        config.setDiskMaxUsedSpaceRatio(95);
        BrokerConfig broker = new BrokerConfig();
        Properties tiered = new Properties();
        tiered.setProperty("tieredBackendServiceProvider", "org.apache.rocketmq.tieredstore.provider.PosixFileSegment");
        tiered.setProperty("tieredStoreFilePath", new File(args[1]).getAbsolutePath());
        tiered.setProperty("tieredStoreGroupCommitTimeout", "100");
        Configuration configuration = new Configuration(LoggerFactory.getLogger("tiered"), config, broker);
        configuration.registerConfig(tiered);
        ConcurrentHashMap<String, TopicConfig> topics = new ConcurrentHashMap<>();
        topics.put("T", new TopicConfig("T", 1, 1));
        BrokerStatsManager stats = new BrokerStatsManager("tiered", true);
        DefaultMessageStore own = new DefaultMessageStore(config, stats, (t, q, o, tag, time, bits, properties) -> { }, broker, topics);
        MessageStore store = new TieredMessageStore(new MessageStorePluginContext(config, stats, null, broker, configuration), own);
        if (!store.load()) throw new IllegalStateException("load() failed");
        store.start();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            MessageExtBrokerInner m = new MessageExtBrokerInner();
            m.setTopic("T");
            m.setQueueId(0);
            m.setBody(("body " + i).getBytes(StandardCharsets.UTF_8));
            m.setKeys("k" + i);
            m.setBornTimestamp(System.currentTimeMillis());
            m.setBornHost(new InetSocketAddress("192.168.0.1", 1234));
            m.setStoreHost(new InetSocketAddress("10.0.0.2", 10911));
            m.setPropertiesString(MessageDecoder.messageProperties2String(m.getProperties()));
            System.out.println(store.putMessage(m).getPutMessageStatus());
        }
        File moved = new File(args[1]);
        for (int i = 0; i < 300 && !holdsLog(moved); i++) Thread.sleep(200);
        store.shutdown();
        System.out.println(holdsLog(moved) ? "MOVED" : "NOT_MOVED");
        System.exit(0);
    }

    private static boolean holdsLog(File place) {
        File[] found = place.isDirectory() ? place.listFiles() : new File[0];
        for (File file : found) {
            if (file.isDirectory() ? holdsLog(file) : file.getPath().contains("COMMIT_LOG") && file.length() > 0) return true;
        }
        return false;
    }
}
