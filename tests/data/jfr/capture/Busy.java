// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import jdk.jfr.FlightRecorder;

/** Does a bit of everything that a recording has events for: computes, allocates, contends, parks: for so many ms, for each argument. */
class Busy {
    static final Object LOCK = new Object();
    static volatile Object kept;
    static volatile double sum;

    static void compute(long until) {
        while (System.nanoTime() < until)
            for (int i = 1; i < 2000; i++)
                sum += Math.sqrt(i);
    }

    static void allocate(long until) {
        List<byte[]> some = new ArrayList<>();
        while (System.nanoTime() < until) {
            for (int i = 0; i < 200; i++)
                some.add(new byte[3000]);
            kept = new byte[2 << 20];
            some.clear();
        }
    }

    static void contend(long until) {
        while (System.nanoTime() < until)
            synchronized (LOCK) {
                compute(System.nanoTime() + 30_000_000L);
            }
    }

    static void park(long until) {
        while (System.nanoTime() < until)
            LockSupport.parkNanos(25_000_000L);
    }

    interface Work {
        void until(long ns);
    }

    static Thread start(String name, Work work, long until) {
        Thread t = new Thread(() -> work.until(until), name);
        t.start();
        return t;
    }

    static void all(long ms) throws InterruptedException {
        long until = System.nanoTime() + ms * 1_000_000L;
        List<Thread> threads = List.of(start("compute-ü", Busy::compute, until),
            start("allocate", Busy::allocate, until), start("contend-1", Busy::contend, until),
            start("contend-2", Busy::contend, until), start("park", Busy::park, until));
        for (Thread t : threads)
            t.join();
    }

    public static void main(String[] args) throws Exception {
        for (String ms : args) {
            all(Long.parseLong(ms));
            FlightRecorder.getFlightRecorder().takeSnapshot().close(); // begins a new chunk
        }
    }
}
