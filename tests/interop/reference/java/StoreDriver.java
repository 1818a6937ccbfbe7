package reference;

import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Drives RocketMQ's own message store: write, append, dump, recover, hold, bench-put, bench-get, bench-wait. JSON lines on stdout. */
public class StoreDriver {
    static PrintStream out;

    /** Told of each message that a queue has now; end is the queue offset behind it. */
    interface Arrival {
        void came(String topic, int queue, long end);
    }

    static volatile Arrival arrival = (topic, queue, end) -> { };

    /** One open store with everything hung on it. */
    static class Store {
        MessageStoreConfig config;
        BrokerConfig brokerConfig;
        BrokerController controller;
        DefaultMessageStore store;
        StoreShim shim;
        boolean loaded;
        double loadMs, startMs;
    }

    public static void main(String[] args) throws Exception {
        out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        int code = 0;
        try {
            if (args.length < 2) throw new IllegalArgumentException("usage: store VERSION write|dump|append|recover|hold|bench-put|bench-get|bench-wait ...");
            List<String> rest = new ArrayList<>(Arrays.asList(args).subList(1, args.length));
            switch (args[0]) {
                case "write": StoreWriter.write(rest, false); break;
                case "append": StoreWriter.write(rest, true); break;
                case "dump": StoreReader.dump(rest); break;
                case "recover": StoreReader.recover(rest); break;
                case "hold": StoreReader.hold(rest); break;
                case "bench-put": StoreBench.benchPut(rest); break;
                case "bench-get": StoreBench.benchGet(rest); break;
                case "bench-wait": WaitBench.benchWait(rest); break;
                default: throw new IllegalArgumentException("no such subcommand: " + args[0]);
            }
        } catch (IllegalArgumentException e) {
            System.err.println("store: " + e.getMessage());
            code = 2;
        } catch (Throwable e) {
            e.printStackTrace();
            code = 1;
        }
        out.flush();
        Runtime.getRuntime().halt(code);
    }

    // ---- opening -------------------------------------------------------------------------------------------------

    static Properties defaults() {
        Properties p = new Properties();
        p.setProperty("haListenPort", "0");
        p.setProperty("timerWheelEnable", "false");
        p.setProperty("enableCompaction", "false");
        p.setProperty("cleanFileForciblyEnable", "false");
        p.setProperty("diskMaxUsedSpaceRatio", "95");
        p.setProperty("brokerIP1", "127.0.0.1");
        p.setProperty("brokerIP2", "127.0.0.1");
        return p;
    }

    /** Opens (but does not load) a store in dir. Options may say "{store}" for the directory. */
    static Store open(String dir, Map<String, Object> options, boolean withBroker, List<?> topics, List<?> filters) throws Exception {
        Properties p = defaults();
        String root = new File(dir).getAbsolutePath();
        p.setProperty("storePathRootDir", root);
        p.setProperty("storePathCommitLog", root + File.separator + "commitlog");
        if (options != null) {
            for (Map.Entry<String, Object> e : options.entrySet()) {
                p.setProperty(e.getKey(), String.valueOf(e.getValue()).replace("{store}", root));
            }
        }
        Store s = new Store();
        s.config = new MessageStoreConfig();
        s.brokerConfig = new BrokerConfig();
        // The store's role setters take names; properties2Object handles strings, numbers and booleans only.
        if (p.containsKey("flushDiskType")) s.config.setFlushDiskType(p.getProperty("flushDiskType"));
        if (p.containsKey("brokerRole")) s.config.setBrokerRole(p.getProperty("brokerRole"));
        p.remove("flushDiskType");
        p.remove("brokerRole");
        MixAll.properties2Object(p, s.config);
        MixAll.properties2Object(p, s.brokerConfig);
        s.shim = new StoreShim();
        if (withBroker) {
            NettyServerConfig server = new NettyServerConfig();
            server.setListenPort(10911);
            s.controller = new BrokerController(s.brokerConfig, server, new NettyClientConfig(), s.config);
        }
        Map<String, TopicConfig> table = new HashMap<>();
        if (topics != null) {
            for (Object o : topics) {
                TopicConfig t = s.shim.topic(map(o));
                table.put(t.getTopicName(), t);
            }
        }
        s.store = s.shim.open(s, table);
        if (s.controller != null) s.controller.setMessageStore(s.store);
        if (filters != null && !filters.isEmpty()) {
            for (Object o : filters) {
                Map<String, Object> f = map(o);
                if (!s.controller.getConsumerFilterManager().register(str(f, "topic", null), str(f, "group", null),
                    str(f, "expression", null), str(f, "type", "SQL92"), num(f, "clientVersion", 1L))) {
                    throw new IllegalStateException("filter refused: " + f);
                }
            }
            s.shim.addBitMapDispatcher(s);
        }
        return s;
    }

    static boolean start(Store s) throws Exception {
        long a = System.nanoTime();
        s.loaded = s.store.load();
        long b = System.nanoTime();
        if (s.loaded) {
            s.store.start();
            s.shim.started(s);
        }
        long c = System.nanoTime();
        s.loadMs = (b - a) / 1e6;
        s.startMs = (c - b) / 1e6;
        return s.loaded;
    }

    static void waitDispatched(Store s) throws Exception {
        long deadline = System.currentTimeMillis() + 120000;
        int quiet = 0;
        while (quiet < 3) {
            quiet = s.store.dispatchBehindBytes() <= 0 ? quiet + 1 : 0;
            Thread.sleep(5);
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("dispatch did not catch up");
        }
    }

    static String arg(List<String> args, int i) {
        if (i >= args.size()) throw new IllegalArgumentException(args.get(args.size() - 1) + " needs a value");
        return args.get(i);
    }

    static void print(Map<String, Object> line) {
        StringBuilder b = new StringBuilder();
        Json.write(b, line);
        out.print(b.append('\n'));
    }

    static String readText(String file) throws Exception {
        return new String(Files.readAllBytes(Paths.get(file)), StandardCharsets.UTF_8);
    }

    static String version() {
        return org.apache.rocketmq.common.MQVersion.getVersionDesc(org.apache.rocketmq.common.MQVersion.CURRENT_VERSION);
    }

    static String hex(byte[] b) {
        StringBuilder s = new StringBuilder();
        for (byte x : b) s.append(String.format("%02x", x & 0xff));
        return s.toString();
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> map(Object o) {
        return (Map<String, Object>) o;
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object o) {
        return o == null ? Collections.emptyList() : (List<Object>) o;
    }

    static String str(Map<String, Object> m, String k, String otherwise) {
        return m.get(k) == null ? otherwise : String.valueOf(m.get(k));
    }

    static long num(Map<String, Object> m, String k, long otherwise) {
        return m.get(k) == null ? otherwise : ((Number) m.get(k)).longValue();
    }

    static boolean truth(Map<String, Object> m, String k) {
        return Boolean.TRUE.equals(m.get(k));
    }
}
