#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# record.sh PROFILER DIRECTORY: records what the eBPF profiler (a binary of open-telemetry/opentelemetry-ebpf-profiler)
# sends in 24 s of two processes of one program, one of another, and Python. Needs root, BPF, gcc and Python's grpcio.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
profiler=$1 to=$(mkdir -p "$2" && cd "$2" && pwd)
mkdir -p /srv/shop /srv/cart /srv/pricing
gcc -O1 -fno-omit-frame-pointer -DSTEPS=1000 -o /srv/shop/shop "$here/busy.c"
gcc -O1 -fno-omit-frame-pointer -DSTEPS=3000 -o /srv/cart/cart "$here/busy.c"
cp "$here/pricing.py" /srv/pricing/
cp "$profiler" /srv/ebpf-profiler
python3 "$here/record.py" 14399 "$to" 33 &
recorder=$!
cd /srv
./shop/shop 28 & ./shop/shop 28 & ./cart/cart 28 & /usr/bin/python3 pricing/pricing.py 28 &
sleep 2
timeout 24 ./ebpf-profiler -collection-agent 127.0.0.1:14399 -disable-tls -reporter-interval 5s || true
wait $recorder
rm -r /srv/shop /srv/cart /srv/pricing /srv/ebpf-profiler
