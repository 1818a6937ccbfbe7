package reference;

import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.processor.EndTransactionProcessor;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageBridge;
import org.apache.rocketmq.broker.transaction.queue.TransactionalMessageServiceImpl;
import org.apache.rocketmq.broker.util.HookUtils;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.CommitLog;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.index.IndexService;
import org.apache.rocketmq.store.logfile.MappedFile;
import org.apache.rocketmq.store.queue.ConsumeQueueInterface;
import org.apache.rocketmq.store.queue.CqUnit;
import org.apache.rocketmq.store.queue.FileQueueLifeCycle;
import org.apache.rocketmq.store.queue.ReferredIterator;
import org.apache.rocketmq.store.stats.BrokerStatsManager;
import org.apache.rocketmq.store.timer.TimerCheckpoint;
import org.apache.rocketmq.store.timer.TimerMessageStore;
import org.apache.rocketmq.store.timer.TimerMetrics;

/** What differs between the majors: this is 5.x. */
class StoreShim {
    static class Unit {
        long queueOffset, pos, tagsCode;
        int size, batchNum = 1;
        Map<String, Object> ext;
    }

    private TransactionalMessageServiceImpl transactions;
    private TimerMessageStore timer;
    private TimerCheckpoint timerCheckpoint;
    private boolean scheduling;

    DefaultMessageStore open(StoreDriver.Store s, Map<String, TopicConfig> topics) throws Exception {
        ConcurrentMap<String, TopicConfig> table = s.controller == null ? new ConcurrentHashMap<>() : s.controller.getTopicConfigManager().getTopicConfigTable();
        table.putAll(topics);
        BrokerStatsManager stats = new BrokerStatsManager("driver", true);
        DefaultMessageStore store = new DefaultMessageStore(s.config, stats, (t, q, o, tag, time, bits, props) -> StoreDriver.arrival.came(t, q, o), s.brokerConfig, table);
        if (s.config.isTimerWheelEnable() && s.controller != null) {
            String config = s.config.getStorePathRootDir() + File.separator + "config" + File.separator;
            timerCheckpoint = new TimerCheckpoint(config + "timercheck");
            timer = new TimerMessageStore(store, s.config, timerCheckpoint, new TimerMetrics(config + "timermetrics"), stats);
            store.setTimerMessageStore(timer);
            s.controller.setTimerMessageStore(timer);
        }
        return store;
    }

    void started(StoreDriver.Store s) {
        if (timer != null) {
            timer.load();
            timer.start();
            timer.syncLastReadTimeMs();   // as a broker does when it becomes master
            timer.setShouldRunningDequeue(true);
        }
        if (s.controller != null) {
            scheduling = s.controller.getScheduleMessageService().load();
            if (scheduling) s.controller.getScheduleMessageService().start();
        }
    }

    void stop(StoreDriver.Store s) {
        if (scheduling) s.controller.getScheduleMessageService().shutdown();
        if (timer != null) timer.shutdown();
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
        if (hooks) {
            PutMessageResult r = HookUtils.checkBeforePutMessage(s.controller, m);
            if (r == null) r = HookUtils.handleScheduleMessage(s.controller, (MessageExtBrokerInner) m);
            if (r != null) return r;
        }
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
        if (m.containsKey("attributes")) {
            Map<String, String> a = new HashMap<>();
            StoreDriver.map(m.get("attributes")).forEach((k, v) -> a.put(k, String.valueOf(v)));
            t.setAttributes(a);
        }
        return t;
    }

    /** The admin path takes attribute changes: "+name" adds. */
    TopicConfig topicUpdate(Map<String, Object> m) {
        TopicConfig t = topic(m);
        Map<String, String> a = new HashMap<>();
        t.getAttributes().forEach((k, v) -> a.put("+" + k, v));
        t.setAttributes(a);
        return t;
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
        ConsumeQueueInterface q = store.findConsumeQueue(topic, queue);
        List<Unit> units = new ArrayList<>();
        long at = q.getMinOffsetInQueue();
        while (at < q.getMaxOffsetInQueue()) {
            ReferredIterator<CqUnit> it = q.iterateFrom(at);
            if (it == null) {
                at = q instanceof FileQueueLifeCycle ? ((FileQueueLifeCycle) q).rollNextFile(at) : q.getMaxOffsetInQueue();
                continue;
            }
            long before = at;
            try {
                while (it.hasNext()) {
                    CqUnit c = it.next();
                    Unit u = new Unit();
                    u.queueOffset = c.getQueueOffset();
                    u.pos = c.getPos();
                    u.size = c.getSize();
                    u.tagsCode = c.getTagsCode();
                    u.batchNum = c.getBatchNum();
                    if (c.getCqExtUnit() != null) u.ext = ext(c.getCqExtUnit());
                    units.add(u);
                    at = u.queueOffset + u.batchNum;
                }
            } finally {
                it.release();
            }
            if (at == before) break;
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
        line.put("lower", store.getOffsetInQueueByTime(topic, queue, ts, BoundaryType.LOWER));
        line.put("upper", store.getOffsetInQueueByTime(topic, queue, ts, BoundaryType.UPPER));
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
        int n = store.getCommitLog().deleteExpiredFile(72L * 3600 * 1000, 10, 1000, false, 100);
        long min = store.getMinPhyOffset();
        store.getConsumeQueueTable().values().forEach(m -> m.values().forEach(q -> { if (q instanceof FileQueueLifeCycle) ((FileQueueLifeCycle) q).deleteExpiredFile(min); }));
        ((IndexService) field(DefaultMessageStore.class, store, "indexService")).deleteExpiredFile(min);
        return n;
    }
}
