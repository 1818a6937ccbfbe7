package reference;

import static reference.StoreDriver.*;

import java.io.File;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.GetMessageStatus;
import org.apache.rocketmq.store.PutMessageResult;

/** bench-put: many messages from several threads; bench-get: a queue from its begin, decoded. */
class StoreBench {
    static void benchPut(List<String> args) throws Exception {
        String dir = null;
        long count = 200000;
        int size = 1024, threads = 1, batch = 1;
        boolean keys = false;
        Map<String, Object> options = new LinkedHashMap<>();
        for (int i = 0; i < args.size(); i++) {
            String a = args.get(i);
            if (a.equals("--count")) count = Long.parseLong(arg(args, ++i));
            else if (a.equals("--size")) size = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--threads")) threads = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--flush")) options.put("flushDiskType", arg(args, ++i) + "_FLUSH");
            else if (a.equals("--batch")) batch = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--keys")) keys = true;
            else if (a.equals("--file-size")) options.put("mappedFileSizeCommitLog", arg(args, ++i));
            else if (a.equals("--options")) options.putAll(map(Json.parse(arg(args, ++i))));
            else if (a.startsWith("--") || dir != null) throw new IllegalArgumentException("bench-put: what is " + a + "?");
            else dir = a;
        }
        if (dir == null) throw new IllegalArgumentException("bench-put: which STORE_DIR?");
        boolean sync = "SYNC_FLUSH".equals(options.get("flushDiskType"));
        Store s = open(dir, options, false, null, null);
        if (!start(s)) throw new IllegalStateException("load() failed");
        long warm = sync ? Math.min(count, 2000) : Math.min(count, 100000);
        putRun(s, "WarmUp", warm, size, threads, batch, keys);
        waitDispatched(s);
        long[][] lat = new long[1][];
        long before = System.nanoTime();
        lat[0] = putRun(s, "BenchTopic", count, size, threads, batch, keys);
        long done = System.nanoTime();
        while (s.store.dispatchBehindBytes() > 0) Thread.sleep(1);
        long dispatched = System.nanoTime();
        long[] l = lat[0];
        Arrays.sort(l);
        double seconds = (done - before) / 1e9;
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("bench", "put");
        line.put("version", version());
        line.put("count", count);
        line.put("size", size);
        line.put("threads", threads);
        line.put("batch", batch);
        line.put("flush", sync ? "SYNC" : "ASYNC");
        line.put("keys", keys);
        line.put("warmup", warm);
        line.put("seconds", round(seconds));
        line.put("msgsPerSecond", Math.round(count / seconds));
        line.put("mbPerSecond", round(count * (double) size / seconds / 1e6));
        line.put("p50us", round(l[l.length / 2] / 1e3));
        line.put("p99us", round(l[(int) (l.length * 0.99)] / 1e3));
        line.put("p999us", round(l[(int) (l.length * 0.999)] / 1e3));
        line.put("maxus", round(l[l.length - 1] / 1e3));
        line.put("dispatchLagMs", round((dispatched - done) / 1e6));
        line.put("msgsPerSecondDispatched", Math.round(count / ((dispatched - before) / 1e9)));
        print(line);
        out.flush();
        s.store.shutdown();
    }

    static long[] putRun(Store s, String topic, long count, int size, int threads, int batch, boolean keys) throws Exception {
        byte[] body = new byte[size];
        new java.util.Random(42).nextBytes(body);
        long calls = count / batch;
        long[][] lat = new long[threads][];
        CountDownLatch ready = new CountDownLatch(threads), go = new CountDownLatch(1), done = new CountDownLatch(threads);
        AtomicLong failed = new AtomicLong();
        SocketAddress born = StoreWriter.host("192.168.0.1:1234"), stored = StoreWriter.host("10.0.0.2:10911");
        for (int t = 0; t < threads; t++) {
            int id = t;
            int mine = (int) (calls / threads + (t < calls % threads ? 1 : 0));
            lat[t] = new long[mine];
            Thread th = new Thread(() -> {
                try {
                    ready.countDown();
                    go.await();
                    for (int i = 0; i < mine; i++) {
                        long a = System.nanoTime();
                        PutMessageResult r;
                        if (batch > 1) {
                            List<Message> parts = new ArrayList<>(batch);
                            for (int b = 0; b < batch; b++) {
                                Message m = new Message();
                                m.setTopic(topic);
                                m.setBody(body);
                                m.setTags("TagA");
                                if (keys) m.setKeys("k" + id + "-" + i + "-" + b);
                                parts.add(m);
                            }
                            MessageExtBatch e = new MessageExtBatch();
                            e.setTopic(topic);
                            e.setQueueId(id);
                            e.setBornTimestamp(System.currentTimeMillis());
                            e.setBornHost(born);
                            e.setStoreHost(stored);
                            e.setBody(MessageDecoder.encodeMessages(parts));
                            r = s.store.putMessages(e);
                        } else {
                            MessageExt m = s.shim.newMessage();
                            m.setTopic(topic);
                            m.setQueueId(id);
                            m.setBody(body);
                            m.setTags("TagA");
                            if (keys) m.setKeys("k" + id + "-" + i);
                            m.setBornTimestamp(System.currentTimeMillis());
                            m.setBornHost(born);
                            m.setStoreHost(stored);
                            s.shim.seal(m);
                            r = s.shim.put(s, m, false);
                        }
                        lat[id][i] = System.nanoTime() - a;
                        if (!r.isOk()) failed.incrementAndGet();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    failed.incrementAndGet();
                } finally {
                    done.countDown();
                }
            });
            th.setDaemon(true);
            th.start();
        }
        ready.await();
        go.countDown();
        done.await();
        if (failed.get() > 0) throw new IllegalStateException(failed.get() + " puts failed");
        long[] all = new long[(int) calls];
        int at = 0;
        for (long[] l : lat) {
            System.arraycopy(l, 0, all, at, l.length);
            at += l.length;
        }
        return all;
    }

    static void benchGet(List<String> args) throws Exception {
        String dir = null, topic = "BenchTopic";
        int queue = 0, batch = 32, passes = 3;
        Map<String, Object> options = new LinkedHashMap<>();
        for (int i = 0; i < args.size(); i++) {
            String a = args.get(i);
            if (a.equals("--topic")) topic = arg(args, ++i);
            else if (a.equals("--queue")) queue = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--batch")) batch = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--passes")) passes = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--file-size")) options.put("mappedFileSizeCommitLog", arg(args, ++i));
            else if (a.equals("--options")) options.putAll(map(Json.parse(arg(args, ++i))));
            else if (a.startsWith("--") || dir != null) throw new IllegalArgumentException("bench-get: what is " + a + "?");
            else dir = a;
        }
        if (dir == null || !new File(dir).isDirectory()) throw new IllegalArgumentException("bench-get: no such store: " + dir);
        Store s = open(dir, options, false, null, null);
        if (!start(s)) throw new IllegalStateException("load() failed");
        for (int pass = 1; pass <= passes; pass++) print(getRun(s, topic, queue, batch, pass));
        out.flush();
        s.store.shutdown();
    }

    private static Map<String, Object> getRun(Store s, String topic, int queue, int batch, int pass) throws Exception {
        long at = s.store.getMinOffsetInQueue(topic, queue);
        long count = 0, bodies = 0;
        long begin = System.nanoTime();
        while (true) {
            GetMessageResult r = s.store.getMessage("bench", topic, queue, at, batch, null);
            if (r == null || r.getStatus() != GetMessageStatus.FOUND) {
                if (r != null) r.release();
                break;
            }
            for (ByteBuffer b : r.getMessageBufferList()) {
                MessageExt m = MessageDecoder.decode(b, true, false);
                bodies += m.getBody().length;
                count++;
            }
            at = r.getNextBeginOffset();
            r.release();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("bench", "get");
        line.put("version", version());
        line.put("pass", pass);
        line.put("batch", batch);
        line.put("count", count);
        line.put("bodyBytes", bodies);
        line.put("seconds", round(seconds));
        line.put("msgsPerSecond", Math.round(count / seconds));
        return line;
    }

    static double round(double v) {
        return Math.round(v * 1000) / 1000.0;
    }
}
