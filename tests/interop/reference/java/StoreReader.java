package reference;

import static reference.StoreDriver.*;

import java.io.File;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;

/** dump and recover: what the reference reads from a store. */
class StoreReader {
    private static final int LOAD_SECONDS = 10;

    static void copyTree(Path from, Path to) throws Exception {
        try {   // keeps holes: a default commit log file has 1 GiB
            Process p = new ProcessBuilder("cp", "-a", "--sparse=always", from + "/.", to.toString()).inheritIO().start();
            if (p.waitFor() == 0) return;
        } catch (java.io.IOException e) {
            // no such command: copy by hand
        }
        Files.walkFileTree(from, new SimpleFileVisitor<Path>() {
            @Override public FileVisitResult preVisitDirectory(Path d, BasicFileAttributes a) throws java.io.IOException {
                Files.createDirectories(to.resolve(from.relativize(d).toString()));
                return FileVisitResult.CONTINUE;
            }

            @Override public FileVisitResult visitFile(Path f, BasicFileAttributes a) throws java.io.IOException {
                Files.copy(f, to.resolve(from.relativize(f).toString()), StandardCopyOption.COPY_ATTRIBUTES, StandardCopyOption.REPLACE_EXISTING);
                return FileVisitResult.CONTINUE;
            }
        });
    }

    /** Opens a copy of each store, one after the other; a store that is refused costs only its own answers. */
    static void dump(List<String> args) throws Exception {
        List<String> dirs = new ArrayList<>();
        Map<String, Object> options = new LinkedHashMap<>();
        List<?> topics = null;
        Map<String, Object> queries = new LinkedHashMap<>();
        for (int i = 0; i < args.size(); i++) {
            String a = args.get(i);
            if (a.equals("--options")) options.putAll(map(Json.parse(arg(args, ++i))));
            else if (a.equals("--spec")) {
                Map<String, Object> spec = map(Json.parse(readText(arg(args, ++i))));
                if (spec.containsKey("options")) options.putAll(map(spec.get("options")));
                topics = list(spec.get("topics"));
            } else if (a.equals("--queries")) queries = map(Json.parse(readText(arg(args, ++i))));
            else if (a.startsWith("--")) throw new IllegalArgumentException("dump: what is " + a + "?");
            else dirs.add(a);
        }
        options.putIfAbsent("brokerRole", "SLAVE");   // a slave delivers no delayed messages while we look
        options.putIfAbsent("offsetCheckInSlave", "true");
        for (String dir : dirs) {
            if (!new File(dir).isDirectory()) throw new IllegalArgumentException("dump: no such store: " + dir);
            Path copy = Files.createTempDirectory("store-dump");   // `store` removes it
            copyTree(Paths.get(dir), copy);
            dumpCopy(dir, copy, options, topics, queries);
            out.flush();
        }
    }

    private static void dumpCopy(String dir, Path copy, Map<String, Object> options, List<?> topics, Map<String, Object> queries) throws Exception {
        Map<String, Object> head = line("store");
        head.put("store", dir);
        Store[] opened = new Store[1];
        try {
            boolean loaded = within(LOAD_SECONDS, () -> {
                opened[0] = open(copy.toString(), options, false, topics, null);
                if (!start(opened[0])) return false;
                waitDispatched(opened[0]);
                return true;
            });
            head.put("load", loaded);
        } catch (Exception e) {
            head.put("load", false);
            head.put("error", String.valueOf(e));
        }
        print(head);
        if (!Boolean.TRUE.equals(head.get("load"))) return;
        Store s = opened[0];
        dumpAll(s);
        for (Object o : list(queries.get("keys"))) print(queryKey(s, str(map(o), "topic", null), str(map(o), "key", null)));
        for (Object o : list(queries.get("times"))) print(queryTime(s, map(o)));
    }

    /** Some damage lets a start wait for ever. */
    private static boolean within(int seconds, Callable<Boolean> work) throws Exception {
        FutureTask<Boolean> task = new FutureTask<>(work);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        try {
            return task.get(seconds, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new IllegalStateException("does not start in " + seconds + " s");
        } catch (ExecutionException e) {
            throw new IllegalStateException(e.getCause());
        }
    }

    private static Map<String, Object> line(String what) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("line", what);
        return line;
    }

    private static Map<String, Object> queryTime(Store s, Map<String, Object> query) {
        Map<String, Object> line = line("time");
        line.putAll(query);
        try {
            s.shim.timeQuery(s.store, str(query, "topic", null), (int) num(query, "queueId", 0), num(query, "timestamp", 0), line);
        } catch (RuntimeException e) {   // on a damaged store
            line.put("error", String.valueOf(e));
        }
        return line;
    }

    private static Map<String, Object> queryKey(Store s, String topic, String key) {
        Map<String, Object> line = line("key");
        line.put("topic", topic);
        line.put("key", key);
        List<Object> found = new ArrayList<>();
        QueryMessageResult r = s.store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        for (ByteBuffer b : r.getMessageBufferList()) {
            MessageExt m = MessageDecoder.decode(b.duplicate(), true, false);
            if (m == null) continue;   // damaged
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("physicalOffset", m.getCommitLogOffset());
            one.put("topic", m.getTopic());
            one.put("keys", m.getKeys());
            one.put("uniqueKey", m.getProperty("UNIQ_KEY"));
            found.add(one);
        }
        r.release();
        line.put("found", found);
        return line;
    }

    private static void dumpAll(Store s) throws Exception {
        SortedMap<String, SortedMap<Integer, long[]>> bounds = s.shim.queues(s.store);
        for (Map.Entry<String, SortedMap<Integer, long[]>> t : bounds.entrySet()) {
            for (Map.Entry<Integer, long[]> q : t.getValue().entrySet()) {
                if (q.getValue()[1] == 0) continue;   // an object without files
                for (StoreShim.Unit u : s.shim.units(s.store, t.getKey(), q.getKey())) {
                    print(unitLine(s, t.getKey(), q.getKey(), u));
                }
                Map<String, Object> end = line("queue");
                end.put("topic", t.getKey());
                end.put("queueId", q.getKey());
                end.put("minOffset", q.getValue()[0]);
                end.put("maxOffset", q.getValue()[1]);
                end.put("pulled", pulled(s, t.getKey(), q.getKey(), q.getValue()[0]));
                print(end);
            }
        }
        Map<String, Object> log = line("log");
        log.put("minOffset", s.store.getMinPhyOffset());
        log.put("maxOffset", s.store.getMaxPhyOffset());
        print(log);
    }

    /** A message with the unit that points to it; `missing` if no record is there any more. */
    private static Map<String, Object> unitLine(Store s, String topic, int queue, StoreShim.Unit u) {
        Map<String, Object> unit = new LinkedHashMap<>();
        unit.put("topic", topic);
        unit.put("queueId", queue);
        unit.put("queueOffset", u.queueOffset);
        unit.put("batchNum", u.batchNum);
        unit.put("tagsCode", u.tagsCode);
        if (u.ext != null) unit.put("ext", u.ext);
        SelectMappedBufferResult r = s.store.getCommitLog().getMessage(u.pos, u.size);
        Map<String, Object> line = null;
        if (r != null) {
            ByteBuffer raw = r.getByteBuffer();
            // 4.x and 5.x answer a read at offset 0 from the first file even when that file begins later.
            boolean there = raw.remaining() > 36 && raw.getLong(28) == u.pos;
            line = there ? messageLine(raw) : null;
            r.release();
        }
        if (line == null) {
            line = line("missing");
            line.put("physicalOffset", u.pos);
            line.put("storeSize", u.size);
        }
        line.put("unit", unit);
        return line;
    }

    private static Map<String, Object> messageLine(ByteBuffer raw) {
        MessageExt m = MessageDecoder.decode(raw.duplicate(), true, false);
        if (m == null) return null;
        Map<String, Object> line = line("message");
        line.put("topic", m.getTopic());
        line.put("queueId", m.getQueueId());
        line.put("queueOffset", m.getQueueOffset());
        line.put("physicalOffset", m.getCommitLogOffset());
        line.put("storeSize", m.getStoreSize());
        line.put("storeTimestamp", m.getStoreTimestamp());
        line.put("bornTimestamp", m.getBornTimestamp());
        line.put("bornHost", hostText(m.getBornHost()));
        line.put("storeHost", hostText(m.getStoreHost()));
        line.put("msgId", MessageDecoder.createMessageId(m.getStoreHost(), m.getCommitLogOffset()));
        line.put("flag", m.getFlag());
        line.put("sysFlag", m.getSysFlag());
        line.put("bodyCRC", m.getBodyCRC());
        line.put("reconsumeTimes", m.getReconsumeTimes());
        line.put("preparedTransactionOffset", m.getPreparedTransactionOffset());
        line.put("properties", m.getProperties() == null ? new TreeMap<String, Object>() : new TreeMap<String, Object>(m.getProperties()));
        line.put("body", base64(m.getBody()));
        if ((m.getSysFlag() & 1) != 0) {
            MessageExt plain = MessageDecoder.decode(raw.duplicate(), true, true);
            line.put("inflated", plain == null ? null : base64(plain.getBody()));
        }
        return line;
    }

    private static String base64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes == null ? new byte[0] : bytes);
    }

    /** How many messages getMessage() hands out from the queue's first offset on. */
    static long pulled(Store s, String topic, int queue, long from) {
        long count = 0;
        long at = from;
        while (true) {
            GetMessageResult r = s.store.getMessage("dump", topic, queue, at, 32, null);
            if (r == null) return -1;
            count += r.getMessageCount();
            long next = r.getNextBeginOffset();
            GetMessageStatus st = r.getStatus();
            r.release();
            if (st != GetMessageStatus.FOUND && st != GetMessageStatus.MESSAGE_WAS_REMOVING && st != GetMessageStatus.OFFSET_FOUND_NULL) return count;
            if (next <= at) return count;
            at = next;
        }
    }

    /** Starts on each store in place, and stops; a store that is refused costs only its own line. */
    static void recover(List<String> args) throws Exception {
        List<String> dirs = new ArrayList<>();
        Map<String, Object> options = new LinkedHashMap<>();
        List<?> topics = null;
        for (int i = 0; i < args.size(); i++) {
            if (args.get(i).equals("--options")) options.putAll(map(Json.parse(arg(args, ++i))));
            else if (args.get(i).equals("--spec")) {
                Map<String, Object> spec = map(Json.parse(readText(arg(args, ++i))));
                if (spec.containsKey("options")) options.putAll(map(spec.get("options")));
                topics = list(spec.get("topics"));
            } else dirs.add(args.get(i));
        }
        if (dirs.isEmpty()) throw new IllegalArgumentException("recover: which store?");
        List<Thread> ends = new ArrayList<>();   // a shutdown mostly sleeps
        for (String dir : dirs) {
            if (!new File(dir).isDirectory()) throw new IllegalArgumentException("recover: no such store: " + dir);
            Store s = recoverOne(dir, options, topics, dirs.size() > 1);
            if (s == null) continue;
            Thread end = new Thread(s.store::shutdown);
            end.start();
            ends.add(end);
        }
        for (Thread end : ends) end.join();
    }

    /** Returns the store if it started. */
    private static Store recoverOne(String dir, Map<String, Object> options, List<?> topics, boolean goesOn) throws Exception {
        boolean abort = new File(dir, "abort").exists();
        Store[] opened = new Store[1];
        Map<String, Object> line;
        boolean ok = false;
        if (goesOn) {
            try {
                ok = within(LOAD_SECONDS, () -> {
                    opened[0] = open(dir, options, false, topics, null);
                    return start(opened[0]);
                });
                line = recovered(opened[0], ok);
            } catch (Exception e) {
                line = new LinkedHashMap<>();
                line.put("load", false);
                line.put("error", String.valueOf(e));
            }
        } else {
            opened[0] = open(dir, options, false, topics, null);
            ok = start(opened[0]);
            line = recovered(opened[0], ok);
        }
        line.put("abort", abort);
        line.put("store", dir);
        print(line);
        out.flush();
        if (!ok) return null;
        waitDispatched(opened[0]);
        return opened[0];
    }

    /** Starts on a store in place, says so or why not, and has it open until stdin ends. */
    static void hold(List<String> args) throws Exception {
        Map<String, Object> options = new LinkedHashMap<>();
        if (args.size() == 3 && args.get(1).equals("--options")) options.putAll(map(Json.parse(args.get(2))));
        else if (args.size() != 1) throw new IllegalArgumentException("hold: which STORE_DIR?");
        Store s = open(args.get(0), options, false, null, null);
        Map<String, Object> line = new LinkedHashMap<>();
        try {
            line.put("load", start(s));
        } catch (RuntimeException e) {
            line.put("load", false);
            line.put("error", String.valueOf(e.getMessage()));
        }
        line.put("pid", ProcessHandle.current().pid());
        print(line);
        out.flush();
        while (System.in.read() >= 0) { }
        if (Boolean.TRUE.equals(line.get("load"))) s.store.shutdown();
    }

    static Map<String, Object> recovered(Store s, boolean ok) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("load", ok);
        line.put("loadMs", Math.round(s.loadMs * 1000) / 1000.0);
        line.put("startMs", Math.round(s.startMs * 1000) / 1000.0);
        if (!ok) return line;
        line.put("commitLogMin", s.store.getMinPhyOffset());
        line.put("commitLogMax", s.store.getMaxPhyOffset());
        List<Object> queues = new ArrayList<>();
        for (Map.Entry<String, SortedMap<Integer, long[]>> t : s.shim.queues(s.store).entrySet()) {
            for (Map.Entry<Integer, long[]> q : t.getValue().entrySet()) {
                if (q.getValue()[1] == 0) continue;
                Map<String, Object> e = new LinkedHashMap<>();
                e.put("topic", t.getKey());
                e.put("queueId", q.getKey());
                e.put("minOffset", q.getValue()[0]);
                e.put("maxOffset", q.getValue()[1]);
                queues.add(e);
            }
        }
        line.put("queues", queues);
        return line;
    }

    static String hostText(SocketAddress a) {
        InetSocketAddress i = (InetSocketAddress) a;
        String ip = i.getAddress().getHostAddress();
        return (ip.contains(":") ? "[" + ip + "]" : ip) + ":" + i.getPort();
    }
}
