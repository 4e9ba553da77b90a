// SPDX-License-Identifier: Apache-2.0
// Data for the mock server: traces and profiles of a shop. They are the same every time.

/** A small random number generator for values from 0 to 1 (mulberry32). */
export function randomOf(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

export function hashOf(text) {
  let h = 2166136261;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 16777619);
  return h >>> 0;
}

const hex = (random, digits) => {
  let out = "";
  while (out.length < digits) out += Math.floor(random() * 16).toString(16);
  return out;
};

// name, own time in ms, share of it on a CPU, calls in order ("+": starts together with the
// previous one)
const operations = {
  "web/GET /product": [
    "server",
    4,
    0.6,
    ["catalog/catalog.Get", "+recommendation/Recommend", "pricing/pricing.Quote"],
  ],
  "web/POST /checkout": ["server", 9, 0.5, ["cart/cart.Load", "checkout/order.place"]],
  "web/GET /cart": ["server", 3, 0.5, ["cart/cart.Load", "+pricing/pricing.Quote"]],
  "web/GET /health": ["server", 0.4, 0.9, []],
  "checkout/order.place": [
    "server",
    14,
    0.8,
    [
      "checkout/order.validate",
      "checkout/order.calculate_totals",
      "payment/payment.Charge",
      "+inventory/inventory.Reserve",
      "mail/mail.Send",
    ],
  ],
  "checkout/order.validate": ["internal", 6, 0.9, ["checkout/SELECT orders.customers"]],
  "checkout/order.calculate_totals": [
    "internal",
    44,
    0.96,
    ["pricing/pricing.Quote", "+checkout/SELECT orders.discounts"],
  ],
  "checkout/SELECT orders.customers": ["client", 5, 0.02, []],
  "checkout/SELECT orders.discounts": ["client", 9, 0.02, []],
  "cart/cart.Load": ["server", 5, 0.45, ["cart/HGETALL cart"]],
  "cart/HGETALL cart": ["client", 2, 0.03, []],
  "payment/payment.Charge": [
    "server",
    18,
    0.25,
    ["payment/tls.handshake", "payment/POST acquirer/v2/charges"],
  ],
  "payment/tls.handshake": ["internal", 11, 0.9, []],
  "payment/POST acquirer/v2/charges": ["client", 95, 0.01, []],
  "inventory/inventory.Reserve": [
    "server",
    7,
    0.5,
    ["inventory/UPDATE stock", "+inventory/UPDATE stock"],
  ],
  "inventory/UPDATE stock": ["client", 12, 0.02, []],
  "pricing/pricing.Quote": ["server", 12, 0.85, []],
  "catalog/catalog.Get": ["server", 6, 0.5, ["catalog/SELECT products"]],
  "catalog/SELECT products": ["client", 6, 0.03, []],
  "recommendation/Recommend": ["server", 25, 0.92, ["recommendation/model.score"]],
  "recommendation/model.score": ["internal", 60, 0.98, []],
  "mail/mail.Send": ["producer", 4, 0.3, []],
};
const roots = [
  "web/GET /product",
  "web/POST /checkout",
  "web/POST /checkout",
  "web/GET /cart",
  "web/GET /health",
];
const unprofiled = new Set(["mail", "cart"]);
const runtimes = { checkout: "python", recommendation: "python", payment: "jvm", catalog: "jvm" };

// Stacks by operation as [weight, "caller;…;leaf"], with functions as file>name.
const go =
  "runtime/proc.go>runtime.goexit;net/http/server.go>net/http.(*conn).serve;net/http/server.go>net/http.serverHandler.ServeHTTP;";
const py =
  "/usr/lib/python3.11/threading.py>Thread.run;/srv/shop/server.py>Server.handle_request;/srv/shop/middleware.py>trace_middleware;";
const jvm =
  "java/lang/Thread.java>java.lang.Thread.run;io/netty/util/concurrent/SingleThreadEventExecutor.java>io.netty.util.concurrent.SingleThreadEventExecutor$4.run;io/grpc/internal/ServerImpl.java>io.grpc.internal.ServerImpl$JumpToApplicationThreadServerStreamListener.messagesAvailable;";
const stacks = {
  "checkout/order.place": [
    [
      5,
      py +
        "/srv/shop/orders.py>OrderService.place;/srv/shop/serializers.py>Order.to_json;/usr/lib/python3.11/json/encoder.py>JSONEncoder.iterencode",
    ],
    [
      4,
      py +
        "/srv/shop/orders.py>OrderService.place;/srv/shop/models.py>Order.__init__;/usr/lib/python3/dist-packages/pydantic/main.py>BaseModel.validate",
    ],
    [
      3,
      py +
        "/srv/shop/orders.py>OrderService.place;/srv/shop/events.py>EventBus.publish;/usr/lib/python3.11/pickle.py>_Pickler.save_dict",
    ],
    [
      1,
      py +
        "/srv/shop/orders.py>OrderService.place;/usr/lib/python3.11/logging/__init__.py>Logger.info;/usr/lib/python3.11/logging/__init__.py>Formatter.format",
    ],
  ],
  "checkout/order.validate": [
    [
      4,
      py +
        "/srv/shop/orders.py>OrderService.validate;/srv/shop/rules.py>RuleSet.check;/usr/lib/python3.11/re/__init__.py>compile",
    ],
    [
      3,
      py +
        "/srv/shop/orders.py>OrderService.validate;/usr/lib/python3/dist-packages/pydantic/main.py>BaseModel.validate",
    ],
  ],
  "checkout/order.calculate_totals": [
    [
      4,
      py +
        "/srv/shop/orders.py>OrderService.calculate_totals;/srv/shop/discounts.py>DiscountEngine.apply;/srv/shop/discounts.py>DiscountEngine.match_rule",
    ],
    [
      3,
      py +
        "/srv/shop/orders.py>OrderService.calculate_totals;/srv/shop/discounts.py>DiscountEngine.apply;/srv/shop/discounts.py>DiscountEngine.match_rule;/srv/shop/discounts.py>Rule.parse_expression;/usr/lib/python3.11/re/__init__.py>compile",
    ],
    [
      3,
      py +
        "/srv/shop/orders.py>OrderService.calculate_totals;/usr/lib/python3.11/_pydecimal.py>Decimal.__mul__;/usr/lib/python3.11/_pydecimal.py>Decimal._fix",
    ],
    [2, py + "/srv/shop/orders.py>OrderService.calculate_totals;/srv/shop/tax.py>TaxTable.lookup"],
    [
      1,
      py +
        "/srv/shop/orders.py>OrderService.calculate_totals;/srv/shop/currency.py>convert;/usr/lib/python3.11/_pydecimal.py>Decimal.quantize",
    ],
  ],
  "pricing/pricing.Quote": [
    [
      5,
      go +
        "pricing/quote.go>pricing.(*Server).Quote;pricing/rules.go>pricing.(*Rules).Evaluate;pricing/tree.go>pricing.(*node).walk;pricing/tree.go>pricing.(*node).walk;pricing/tree.go>pricing.(*node).match",
    ],
    [
      3,
      go +
        "pricing/quote.go>pricing.(*Server).Quote;encoding/json/encode.go>encoding/json.Marshal;encoding/json/encode.go>encoding/json.(*encodeState).reflectValue;encoding/json/encode.go>encoding/json.structEncoder.encode",
    ],
    [
      2,
      go +
        "pricing/quote.go>pricing.(*Server).Quote;runtime/malloc.go>runtime.mallocgc;runtime/mgcmark.go>runtime.gcAssistAlloc",
    ],
    [1, go + "pricing/quote.go>pricing.(*Server).Quote;math/big/float.go>math/big.(*Float).Mul"],
  ],
  "web/GET /product": [
    [
      3,
      go +
        "web/product.go>main.(*App).product;html/template/template.go>html/template.(*Template).Execute;text/template/exec.go>text/template.(*state).walk;text/template/exec.go>text/template.(*state).evalPipeline",
    ],
    [
      2,
      go +
        "web/product.go>main.(*App).product;compress/gzip/gzip.go>compress/gzip.(*Writer).Write;compress/flate/deflate.go>compress/flate.(*compressor).deflate",
    ],
  ],
  "web/POST /checkout": [
    [
      3,
      go +
        "web/checkout.go>main.(*App).checkout;encoding/json/decode.go>encoding/json.Unmarshal;encoding/json/decode.go>encoding/json.(*decodeState).object",
    ],
    [
      2,
      go +
        "web/checkout.go>main.(*App).checkout;crypto/tls/conn.go>crypto/tls.(*Conn).Write;crypto/aes/gcm_amd64.s>crypto/aes.gcmAesEnc",
    ],
  ],
  "payment/tls.handshake": [
    [
      5,
      jvm +
        "shop/payment/Gateway.java>shop.payment.Gateway.connect;sun/security/ssl/SSLSocketImpl.java>sun.security.ssl.SSLSocketImpl.startHandshake;sun/security/ssl/CertificateMessage.java>sun.security.ssl.CertificateMessage$T13CertificateConsumer.consume;sun/security/rsa/RSASignature.java>sun.security.rsa.RSASignature.engineVerify;java/math/BigInteger.java>java.math.BigInteger.oddModPow",
    ],
    [
      2,
      jvm +
        "shop/payment/Gateway.java>shop.payment.Gateway.connect;sun/security/ssl/SSLSocketImpl.java>sun.security.ssl.SSLSocketImpl.startHandshake;sun/security/ec/XDHKeyAgreement.java>sun.security.ec.XDHKeyAgreement.engineDoPhase",
    ],
  ],
  "payment/payment.Charge": [
    [
      3,
      jvm +
        "shop/payment/ChargeService.java>shop.payment.ChargeService.charge;com/fasterxml/jackson/databind/ObjectMapper.java>com.fasterxml.jackson.databind.ObjectMapper.writeValueAsBytes;com/fasterxml/jackson/databind/ser/BeanSerializer.java>com.fasterxml.jackson.databind.ser.BeanSerializer.serialize",
    ],
    [
      1,
      jvm +
        "shop/payment/ChargeService.java>shop.payment.ChargeService.charge;shop/payment/Fraud.java>shop.payment.Fraud.score",
    ],
  ],
  "recommendation/model.score": [
    [
      6,
      py +
        "/srv/rec/model.py>Model.score;/usr/lib/python3/dist-packages/numpy/core/multiarray.py>dot;libopenblas.so>dgemm_kernel_HASWELL",
    ],
    [
      3,
      py +
        "/srv/rec/model.py>Model.score;/srv/rec/features.py>Features.load;/usr/lib/python3/dist-packages/numpy/core/numeric.py>concatenate",
    ],
    [2, py + "/srv/rec/model.py>Model.score;/srv/rec/features.py>Features.normalise"],
    [
      1,
      py +
        "/srv/rec/model.py>Model.score;/srv/rec/rank.py>top_k;/usr/lib/python3.11/heapq.py>nlargest",
    ],
  ],
};
/** Additional stack of orders from a customer with a thousand discount rules. */
const slowStack =
  py +
  "/srv/shop/orders.py>OrderService.calculate_totals;/srv/shop/discounts.py>DiscountEngine.apply;/srv/shop/discounts.py>DiscountEngine.reload_rules;";
const slowStacks = [
  [
    22,
    slowStack +
      "/srv/shop/discounts.py>Rule.parse_expression;/usr/lib/python3.11/re/__init__.py>compile;/usr/lib/python3.11/re/_parser.py>parse",
  ],
  [
    9,
    slowStack +
      "/srv/shop/discounts.py>Rule.parse_expression;/usr/lib/python3.11/re/__init__.py>compile;/usr/lib/python3.11/re/_compiler.py>_code",
  ],
  [5, slowStack + "/usr/lib/python3.11/copy.py>deepcopy"],
];

function stacksOf(key) {
  if (stacks[key]) return stacks[key];
  const [service, name] = [key.slice(0, key.indexOf("/")), key.slice(key.indexOf("/") + 1)];
  const head = { python: py, jvm }[runtimes[service]] ?? go;
  return [
    [
      3,
      `${head}${service}/handler>${service}.${name.replaceAll(/[^A-Za-z]+/g, "_")};${service}/codec>${service}.encode`,
    ],
    [
      2,
      `${head}${service}/handler>${service}.${name.replaceAll(/[^A-Za-z]+/g, "_")};net/net.go>net.(*conn).Read;internal/poll/fd_unix.go>internal/poll.(*FD).Read;syscall/asm>syscall.Syscall`,
    ],
  ];
}

/** Generates the spans of a shop over a time range: {spans, byTrace, services}. */
export function shop({ traces = 6000, endMs, lengthMs = 3600e3, seed = 7 }) {
  const random = randomOf(seed);
  const byTrace = new Map();
  const spans = [];
  for (let i = 0; i < traces; i++) {
    const trace = { id: hex(random, 32), spans: [] };
    const wave = 0.5 + 0.5 * Math.sin(i / 300);
    const startMs = endMs - lengthMs * (1 - (i + random() * 0.9) / traces);
    const root = roots[Math.floor(random() * roots.length)];
    const slow = root === "web/POST /checkout" && random() < 0.045 + 0.03 * wave;
    const make = (key, parent, at) => {
      const cut = key.indexOf("/");
      const [service, name] = [key.slice(0, cut), key.slice(cut + 1)];
      const [kind, ownMs, cpu, calls] = operations[key];
      let own = ownMs * Math.exp((random() - 0.5) * 1.1);
      const isSlow = slow && key === "checkout/order.calculate_totals";
      if (isSlow) own *= 12 + 9 * random();
      const span = {
        trace,
        id: hex(random, 16),
        parent,
        service,
        name,
        kind,
        key,
        isSlow,
        startMs: at,
        error: key === "payment/payment.Charge" && random() < 0.05,
      };
      trace.spans.push(span);
      let now = at + own * 0.35,
        last = now,
        end = now;
      for (const call of calls) {
        const beside = call.startsWith("+");
        const child = make(
          beside ? call.slice(1) : call,
          span,
          beside ? last + 0.3 : Math.max(now, end) + own * 0.05,
        );
        last = child.startMs;
        end = Math.max(end, child.startMs + child.durationMs);
      }
      span.durationMs = end - at + own * (calls.length ? 0.55 : 0.65);
      const cpuMs = unprofiled.has(service) ? 0 : own * cpu;
      span.samples = cpuMs > 10 ? Math.round(cpuMs / 10) : random() < cpuMs / 10 ? 1 : 0;
      if (span.error && parent) parent.error = true;
      return span;
    };
    make(root, null, startMs);
    byTrace.set(trace.id, trace);
    for (const span of trace.spans) spans.push(span);
  }
  return { spans, byTrace };
}

/** Generates one large trace: a batch job with many parallel parts. */
export function largeTrace(endMs, n = 10000) {
  const random = randomOf(99);
  const trace = { id: "0af7651916cd43dd8448eb211c80319c", spans: [] };
  const add = (parent, service, name, kind, startMs, durationMs, samples, error = false) => {
    const span = {
      trace,
      id: hex(random, 16),
      parent,
      service,
      name,
      kind,
      key: `${service}/${name}`,
      startMs,
      durationMs,
      samples,
      error,
    };
    trace.spans.push(span);
    return span;
  };
  const root = add(null, "inventory", "stock.reconcile", "internal", endMs - 120e3, 90e3, 210);
  const shards = 40;
  for (let s = 0; s < shards; s++) {
    const at = root.startMs + 500 + s * 2180;
    const shard = add(root, "inventory", `shard ${s}`, "internal", at, 2100 + 400 * random(), 12);
    for (let i = 0; trace.spans.length < 1 + (s + 1) * ((n - 1) / shards); i++) {
      const t = at + 20 + (i * 2000) / (n / shards);
      const call = add(
        shard,
        "catalog",
        "catalog.Get",
        "server",
        t,
        6 + 20 * random(),
        random() < 0.2 ? 1 : 0,
        random() < 0.004,
      );
      if (trace.spans.length < 1 + (s + 1) * ((n - 1) / shards))
        add(call, "catalog", "SELECT products", "client", t + 1, 4 * random() + 1, 0);
    }
  }
  return trace;
}

/** Returns the stacks of a span: a Map from "file>name;…" to samples. */
export function stacksOfSpan(span, type = "cpu", into = new Map()) {
  const random = randomOf(hashOf(span.id + type));
  const list = span.isSlow ? [...stacksOf(span.key), ...slowStacks] : stacksOf(span.key);
  const sum = list.reduce((all, [weight]) => all + weight, 0);
  const n =
    type === "cpu" ? span.samples : Math.ceil(span.samples * (type === "alloc" ? 1.7 : 0.2));
  for (let i = 0; i < n; i++) {
    let at = random() * sum,
      chosen = list[0][1];
    for (const [weight, stack] of list) {
      if ((at -= weight) < 0) {
        chosen = stack;
        break;
      }
    }
    const depth = random() < 0.12 ? chosen.lastIndexOf(";") : chosen.length;
    chosen = chosen.slice(0, depth);
    into.set(chosen, (into.get(chosen) ?? 0) + 1);
  }
  return into;
}

/** Generates a tree of n stack nodes, about 49 deep, with 2,500 names. */
export function largeStacks(n = 20000, scale = 1) {
  const random = randomOf(4);
  const packages = [
    "runtime",
    "net/http",
    "encoding/json",
    "main",
    "database/sql",
    "crypto/tls",
    "compress/flate",
    "shop/pricing",
    "shop/orders",
    "google.golang.org/grpc",
    "github.com/lib/pq",
  ];
  const verbs = [
    "read",
    "write",
    "encode",
    "decode",
    "flush",
    "walk",
    "serialize",
    "parse",
    "lookup",
    "merge",
    "scan",
    "hash",
  ];
  const names = Array.from({ length: 2500 }, (_, i) => {
    const name = packages[i % packages.length];
    return `${name}/file${i % 37}.go>${name}.(*T${i % 61}).${verbs[i % verbs.length]}${i}`;
  });
  const root = { name: "total", self: 0, children: new Map() };
  let made = 1;
  while (made < n) {
    let at = root;
    const depth = 8 + Math.floor(random() * 41);
    const lane = Math.floor(random() ** 2 * 40);
    for (let d = 0; d < depth && made < n; d++) {
      const wide = d < 10 ? 2 : 3;
      const name =
        names[(lane * 7 + d * 131 + Math.floor(random() ** 3 * wide) * 977) % names.length];
      let child = at.children.get(name);
      if (!child) {
        child = { name, self: 0, children: new Map() };
        at.children.set(name, child);
        made++;
      }
      at = child;
    }
    at.self += (1 + Math.floor(random() ** 4 * 40)) * scale;
  }
  return root;
}

export function trieOf(stackMap, scale = 1) {
  const root = { name: "total", self: 0, children: new Map() };
  for (const [stack, n] of stackMap) {
    let at = root;
    for (const name of stack.split(";")) {
      let child = at.children.get(name);
      if (!child) {
        child = { name, self: 0, children: new Map() };
        at.children.set(name, child);
      }
      at = child;
    }
    at.self += n * scale;
  }
  return root;
}

const split = (name) => {
  const cut = name.indexOf(">");
  return cut < 0 ? ["", name] : [name.slice(0, cut), name.slice(cut + 1)];
};

function sum(node) {
  node.total = node.self;
  for (const child of node.children.values()) node.total += sum(child);
  return node.total;
}

class Names {
  names = [];
  files = [];
  index = new Map();
  of(full) {
    let i = this.index.get(full);
    if (i === undefined) {
      const [file, name] = split(full);
      i = this.names.length;
      this.names.push(name);
      this.files.push(file);
      this.index.set(full, i);
    }
    return i;
  }
}

/** Returns the flamebearer of a trie. */
export function flamebearer(root) {
  sum(root);
  const names = new Names();
  const levels = [];
  let maxSelf = 0;
  const ends = [];
  const visit = (node, depth, start) => {
    levels[depth] ??= [];
    levels[depth].push(start - (ends[depth] ?? 0), node.total, node.self, names.of(node.name));
    ends[depth] = start + node.total;
    maxSelf = Math.max(maxSelf, node.self);
    let at = start + node.self;
    for (const child of [...node.children.values()].sort((a, b) => (a.name < b.name ? -1 : 1))) {
      visit(child, depth + 1, at);
      at += child.total;
    }
  };
  visit(root, 0, 0);
  return { names: names.names, files: names.files, levels, numTicks: root.total, maxSelf };
}

/** Returns the flamebearer of two tries, with seven numbers per bar. */
export function flamebearerOfDifference(left, right) {
  sum(left);
  sum(right);
  const names = new Names();
  const levels = [],
    ends = [];
  const empty = { self: 0, total: 0, children: new Map() };
  const visit = (name, l, r, depth, atL, atR) => {
    levels[depth] ??= [];
    ends[depth] ??= [0, 0];
    levels[depth].push(
      atL - ends[depth][0],
      l.total,
      l.self,
      atR - ends[depth][1],
      r.total,
      r.self,
      names.of(name),
    );
    ends[depth] = [atL + l.total, atR + r.total];
    atL += l.self;
    atR += r.self;
    for (const child of [...new Set([...l.children.keys(), ...r.children.keys()])].sort()) {
      const a = l.children.get(child) ?? empty,
        b = r.children.get(child) ?? empty;
      visit(child, a, b, depth + 1, atL, atR);
      atL += a.total;
      atR += b.total;
    }
  };
  visit("total", left, right, 0, 0, 0);
  return {
    names: names.names,
    files: names.files,
    levels,
    numTicks: left.total + right.total,
    maxSelf: 0,
    leftTicks: left.total,
    rightTicks: right.total,
  };
}

/** Returns totals by function: a Map from the full name to {self, total}. */
export function functionsOf(root) {
  sum(root);
  const out = new Map();
  const open = new Set();
  const visit = (node) => {
    let entry = out.get(node.name);
    if (!entry) out.set(node.name, (entry = { self: 0, total: 0 }));
    entry.self += node.self;
    const first = !open.has(node.name);
    if (first) {
      entry.total += node.total;
      open.add(node.name);
    }
    for (const child of node.children.values()) visit(child);
    if (first) open.delete(node.name);
  };
  for (const child of root.children.values()) visit(child);
  return out;
}

export const splitName = split;

/** Divides the duration of a span into parts, as Braid does (without clock skew): a Map from
 * "service/name" to [ms, calls]. `samples` are those of the span itself. */
export function partsOf(span) {
  const childrenOf = (one) => one.trace.spans.filter((other) => other.parent === one);
  const crosses = (one) =>
    childrenOf(one).some((child) => child.service !== one.service || crosses(child));
  const waits = [];
  let { samples } = span;
  const walk = (one, from, to) => {
    for (const child of childrenOf(one)) {
      const begin = Math.max(from, child.startMs),
        end = Math.min(to, child.startMs + child.durationMs);
      if (child.service === one.service && crosses(child)) {
        samples += child.samples;
        walk(child, begin, end);
      } else waits.push({ key: child.key, begin, end });
    }
  };
  walk(span, span.startMs, span.startMs + span.durationMs);
  const parts = new Map();
  let free = Infinity,
    covered = 0;
  for (const { key, begin, end } of waits.sort((a, b) => b.end - a.end)) {
    const ms = Math.max(0, Math.min(end, free) - begin);
    if (ms > 0) free = begin;
    const part = parts.get(key) ?? [0, 0];
    parts.set(key, [part[0] + ms, part[1] + 1]);
    covered += ms;
  }
  return { parts, samples, restMs: span.durationMs - covered };
}
