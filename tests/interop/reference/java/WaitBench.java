package reference;

import static reference.StoreDriver.*;

import java.net.SocketAddress;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.common.message.MessageExt;

/** bench-wait: the time from a put to the arrival listener, one message at a time or at a rate. */
class WaitBench {
    static void benchWait(List<String> args) throws Exception {
        String dir = null;
        int count = 10000, size = 100, rate = 0;
        Map<String, Object> options = new LinkedHashMap<>();
        for (int i = 0; i < args.size(); i++) {
            String a = args.get(i);
            if (a.equals("--count")) count = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--size")) size = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--rate")) rate = Integer.parseInt(arg(args, ++i));
            else if (a.equals("--flush")) options.put("flushDiskType", arg(args, ++i) + "_FLUSH");
            else if (a.equals("--file-size")) options.put("mappedFileSizeCommitLog", arg(args, ++i));
            else if (a.startsWith("--") || dir != null) throw new IllegalArgumentException("bench-wait: what is " + a + "?");
            else dir = a;
        }
        if (dir == null) throw new IllegalArgumentException("bench-wait: which STORE_DIR?");
        Store s = open(dir, options, false, null, null);
        if (!start(s)) throw new IllegalStateException("load() failed");
        run(s, "WarmUp", Math.min(count, 2000), size, 0);
        long[] took = run(s, "BenchTopic", count, size, rate);
        Arrays.sort(took);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("bench", "wait");
        line.put("version", version());
        line.put("count", count);
        line.put("rate", rate);
        line.put("p50us", StoreBench.round(took[took.length / 2] / 1e3));
        line.put("p99us", StoreBench.round(took[(int) (took.length * 0.99)] / 1e3));
        line.put("maxus", StoreBench.round(took[took.length - 1] / 1e3));
        print(line);
        out.flush();
        s.store.shutdown();
    }

    /** Rate 0: the next put comes when the message before it has arrived. */
    private static long[] run(Store s, String topic, int count, int size, int rate) throws Exception {
        byte[] body = new byte[size];
        new java.util.Random(42).nextBytes(body);
        SocketAddress born = StoreWriter.host("192.168.0.1:1234"), stored = StoreWriter.host("10.0.0.2:10911");
        long[] put = new long[count], came = new long[count];
        Semaphore arrived = new Semaphore(0);
        arrival = (t, q, end) -> {
            if (!t.equals(topic)) return;
            came[(int) end - 1] = System.nanoTime();
            arrived.release();
        };
        long begin = System.nanoTime();
        for (int i = 0; i < count; i++) {
            if (rate > 0) {
                long due = begin + i * 1_000_000_000L / rate, left;
                while ((left = due - System.nanoTime()) > 0) LockSupport.parkNanos(left);
            }
            put[i] = System.nanoTime();
            MessageExt m = s.shim.newMessage();
            m.setTopic(topic);
            m.setQueueId(0);
            m.setBody(body);
            m.setTags("TagA");
            m.setBornTimestamp(System.currentTimeMillis());
            m.setBornHost(born);
            m.setStoreHost(stored);
            s.shim.seal(m);
            if (!s.shim.put(s, m, false).isOk()) throw new IllegalStateException("a put failed");
            if (rate == 0) await(arrived, 1);
        }
        if (rate > 0) await(arrived, count);
        long[] took = new long[count];
        for (int i = 0; i < count; i++) took[i] = came[i] - put[i];
        return took;
    }

    private static void await(Semaphore arrived, int count) throws Exception {
        if (!arrived.tryAcquire(count, 30, TimeUnit.SECONDS)) throw new IllegalStateException("a message did not arrive");
    }
}
