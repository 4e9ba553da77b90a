// SPDX-License-Identifier: Apache-2.0

import java.util.concurrent.locks.LockSupport;

/** A program that knows of no profiler: the JDK's own recorder is started by the command line. */
public final class Jdk {
    private static final Object LOCK = new Object();
    private static volatile byte[] kept;
    private static long sum;

    private static void burn(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            for (int i = 0; i < 10000; i++) {
                sum += (long) i * i;
            }
        }
    }

    private static void rootWork(double seconds) {
        burn(seconds);
    }

    private static void lockedWork(double seconds) {
        synchronized (LOCK) {
            burn(seconds);
        }
    }

    private static void allocate(double seconds) {
        long end = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < end) {
            kept = new byte[1 << 20];
        }
    }

    public static void main(String[] args) throws Exception {
        double seconds = Double.parseDouble(System.getenv("SECONDS"));
        Thread other = new Thread(() -> {
            lockedWork(seconds / 3);
            LockSupport.parkNanos(200_000_000L);
        }, "worker-1");
        other.start();
        rootWork(seconds / 6);
        lockedWork(seconds / 3); // waits for the other
        allocate(seconds / 3);
        other.join();
    }
}
