package reference;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFile;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.MessageExtBrokerInner;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** What differs between the majors: this is 4.x (4.6 and later). */
class StoreShim {
    static class Unit {
        long queueOffset, pos, tagsCode;
        int size, batchNum = 1;
        Map<String, Object> ext;
    }

    private TransactionalMessageServiceImpl transactions;

    DefaultMessageStore open(StoreDriver.Store s, Map<String, TopicConfig> topics) throws Exception {
        Constructor<?> c = BrokerStatsManager.class.getConstructors()[0];
        Object[] a = new Object[c.getParameterCount()];
        a[0] = "driver";
        if (a.length > 1) a[1] = true;
        return new DefaultMessageStore(s.config, (BrokerStatsManager) c.newInstance(a), (t, q, o, tag, time, bits, props) -> StoreDriver.arrival.came(t, q, o), s.brokerConfig);
    }

    void started(StoreDriver.Store s) {
    }

    void stop(StoreDriver.Store s) {
    }

    void addBitMapDispatcher(StoreDriver.Store s) {
        s.store.getDispatcherList().addFirst(new CommitLogDispatcherCalcBitMap(s.brokerConfig, s.controller.getConsumerFilterManager()));
    }

    MessageExt newMessage() {
        return new MessageExtBrokerInner();
    }

    void seal(MessageExt m) {
        MessageExtBrokerInner i = (MessageExtBrokerInner) m;
        i.setPropertiesString(MessageDecoder.messageProperties2String(i.getProperties()));
        i.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(null, i.getTags()));
    }

    PutMessageResult put(StoreDriver.Store s, MessageExt m, boolean hooks) {
        return s.store.putMessage((MessageExtBrokerInner) m);
    }

    private TransactionalMessageServiceImpl transactions(StoreDriver.Store s) {
        if (transactions == null) transactions = new TransactionalMessageServiceImpl(new TransactionalMessageBridge(s.controller, s.store));
        return transactions;
    }

    PutMessageResult putHalf(StoreDriver.Store s, MessageExt m) {
        MessageAccessor.putProperty(m, MessageConst.PROPERTY_TRANSACTION_PREPARED, "true");
        seal(m);
        return transactions(s).prepareMessage((MessageExtBrokerInner) m);
    }

    PutMessageResult endTransaction(StoreDriver.Store s, AppendMessageResult half, boolean commit) throws Exception {
        MessageExt m = s.store.lookMessageByOffset(half.getWroteOffset());
        PutMessageResult r = null;
        if (commit) {
            Method end = EndTransactionProcessor.class.getDeclaredMethod("endMessageTransaction", MessageExt.class);
            end.setAccessible(true);
            MessageExtBrokerInner i = (MessageExtBrokerInner) end.invoke(new EndTransactionProcessor(s.controller), m);
            i.setSysFlag(MessageSysFlag.resetTransactionValue(i.getSysFlag(), MessageSysFlag.TRANSACTION_COMMIT_TYPE));
            i.setQueueOffset(half.getLogicsOffset());
            i.setPreparedTransactionOffset(half.getWroteOffset());
            i.setStoreTimestamp(m.getStoreTimestamp());
            MessageAccessor.clearProperty(i, MessageConst.PROPERTY_TRANSACTION_PREPARED);
            r = s.store.putMessage(i);
        }
        if (!transactions(s).deletePrepareMessage(m)) throw new IllegalStateException("op message refused");
        return r;
    }

    TopicConfig topic(Map<String, Object> m) {
        TopicConfig t = new TopicConfig(StoreDriver.str(m, "name", null));
        t.setReadQueueNums((int) StoreDriver.num(m, "readQueueNums", 4));
        t.setWriteQueueNums((int) StoreDriver.num(m, "writeQueueNums", 4));
        t.setPerm((int) StoreDriver.num(m, "perm", 6));
        t.setOrder(StoreDriver.truth(m, "order"));
        t.setTopicSysFlag((int) StoreDriver.num(m, "topicSysFlag", 0));
        return t;
    }

    TopicConfig topicUpdate(Map<String, Object> m) {
        return topic(m);
    }

    void group(BrokerController b, Map<String, Object> m) {
        SubscriptionGroupConfig g = new SubscriptionGroupConfig();
        g.setGroupName(StoreDriver.str(m, "name", null));
        g.setRetryMaxTimes((int) StoreDriver.num(m, "retryMaxTimes", 16));
        g.setRetryQueueNums((int) StoreDriver.num(m, "retryQueueNums", 1));
        b.getSubscriptionGroupManager().updateSubscriptionGroupConfig(g);
    }

    SortedMap<String, SortedMap<Integer, long[]>> queues(DefaultMessageStore store) {
        SortedMap<String, SortedMap<Integer, long[]>> all = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> {
            SortedMap<Integer, long[]> ids = all.computeIfAbsent(topic, k -> new TreeMap<>());
            queues.forEach((id, q) -> ids.put(id, new long[] {q.getMinOffsetInQueue(), q.getMaxOffsetInQueue()}));
        });
        return all;
    }

    List<Unit> units(DefaultMessageStore store, String topic, int queue) {
        ConsumeQueue q = store.findConsumeQueue(topic, queue);
        List<Unit> units = new ArrayList<>();
        long at = q.getMinOffsetInQueue();
        while (at < q.getMaxOffsetInQueue()) {
            SelectMappedBufferResult r = q.getIndexBuffer(at);
            if (r == null) {
                at = q.rollNextFile(at);
                continue;
            }
            ByteBuffer b = r.getByteBuffer();
            for (int i = 0; i + 20 <= r.getSize(); i += 20, at++) {
                Unit u = new Unit();
                u.queueOffset = at;
                u.pos = b.getLong();
                u.size = b.getInt();
                u.tagsCode = b.getLong();
                if (ConsumeQueueExt.isExtAddr(u.tagsCode)) {
                    ConsumeQueueExt.CqExtUnit e = q.getExt(u.tagsCode);
                    if (e != null) u.ext = ext(e);
                }
                units.add(u);
            }
            r.release();
        }
        return units;
    }

    static Map<String, Object> ext(ConsumeQueueExt.CqExtUnit e) {
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("size", (int) e.getSize());
        m.put("tagsCode", e.getTagsCode());
        m.put("msgStoreTime", e.getMsgStoreTime());
        m.put("filterBitMap", e.getFilterBitMap() == null ? null : StoreDriver.hex(e.getFilterBitMap()));
        return m;
    }

    void timeQuery(DefaultMessageStore store, String topic, int queue, long ts, Map<String, Object> line) {
        line.put("offset", store.getOffsetInQueueByTime(topic, queue, ts));
    }

    private static Object field(Class<?> c, Object o, String name) throws Exception {
        Field f = c.getDeclaredField(name);
        f.setAccessible(true);
        return f.get(o);
    }

    List<String> commitLogFiles(DefaultMessageStore store) throws Exception {
        List<String> names = new ArrayList<>();
        for (MappedFile f : ((MappedFileQueue) field(CommitLog.class, store.getCommitLog(), "mappedFileQueue")).getMappedFiles()) names.add(f.getFileName());
        return names;
    }

    int deleteExpired(DefaultMessageStore store) throws Exception {
        int n = store.getCommitLog().deleteExpiredFile(72L * 3600 * 1000, 10, 1000, false);
        long min = store.getMinPhyOffset();
        store.getConsumeQueueTable().values().forEach(m -> m.values().forEach(q -> q.deleteExpiredFile(min)));
        ((IndexService) field(DefaultMessageStore.class, store, "indexService")).deleteExpiredFile(min);
        return n;
    }
}
