// SPDX-License-Identifier: Apache-2.0
// The waterfall: one row per span, of which only the visible ones are in the document, and an overview above.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { serviceColor } from "../color";
import { count, duration, isolate } from "../format";
import { Icon, useSize, useWindow } from "../parts/basics";
import type { Node, Tree } from "./model";
import { movedText } from "./skew";

const rowHeight = 26;

export interface WaterfallProps {
  tree: Tree;
  rows: Node[];
  chosen: Node | null;
  matches: Set<Node> | null;
  collapsed: Set<string>;
  critical: boolean;
  dark: boolean;
  /** Visible range of the trace, in ns. */
  from: number;
  to: number;
  onChoose: (node: Node) => void;
  onToggle: (node: Node, open?: boolean) => void;
  onRange: (from: number, to: number) => void;
  onOpen: () => void;
}

export function Waterfall(props: WaterfallProps) {
  const { rows, chosen, matches, collapsed, dark, from, to } = props;
  const view = useWindow(rows.length, rowHeight);
  const at = chosen ? rows.indexOf(chosen) : -1;
  useEffect(() => {
    if (at >= 0) view.reveal(at);
  }, [at, view.height > 0]);
  const length = Math.max(1, to - from);
  const place = (ns: number): number => ((ns - from) / length) * 100;

  const onKeyDown = (event: KeyboardEvent): void => {
    const move = (row: number): void =>
      void (rows.length && props.onChoose(rows[Math.min(rows.length - 1, Math.max(0, row))]));
    const open = chosen && chosen.children.length > 0 && !collapsed.has(chosen.span.span_id);
    if (event.key === "ArrowDown") move(at + 1);
    else if (event.key === "ArrowUp") move(at < 0 ? 0 : at - 1);
    else if (event.key === "PageDown") move(at + 20);
    else if (event.key === "PageUp") move(at - 20);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(rows.length - 1);
    else if (event.key === "ArrowRight" && chosen) {
      if (open || !chosen.children.length) move(at + 1);
      else props.onToggle(chosen, true);
    } else if (event.key === "ArrowLeft" && chosen) {
      if (open) props.onToggle(chosen, false);
      else if (chosen.parent) props.onChoose(chosen.parent);
    } else if (event.key === "Enter") props.onOpen();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div
      class="waterfall"
      role="treegrid"
      aria-label="Spans of the trace"
      aria-rowcount={rows.length + 1}
      tabIndex={0}
      aria-activedescendant={chosen ? `span${chosen.span.span_id}` : undefined}
      onKeyDown={onKeyDown}
    >
      <div class="waterfall-head" role="row">
        <div role="columnheader" class="waterfall-name">
          Service and operation
        </div>
        <div role="columnheader" class="waterfall-time">
          <Overview {...props} />
          <Ticks from={from} to={to} />
        </div>
      </div>
      <div class="waterfall-body" role="rowgroup" ref={view.box} onScroll={view.onScroll}>
        <div style={{ height: `${rows.length * rowHeight}px` }} role="presentation">
          <div style={{ transform: `translateY(${view.from * rowHeight}px)` }} role="presentation">
            {rows.slice(view.from, view.to).map((node, i) => {
              const { span } = node;
              const color = serviceColor(span.service, dark);
              const left = place(node.start);
              const right = place(node.end);
              const away = matches !== null && !matches.has(node);
              const closed = collapsed.has(span.span_id);
              const failed = span.status === "error";
              return (
                <div
                  key={span.span_id}
                  id={`span${span.span_id}`}
                  role="row"
                  aria-rowindex={view.from + i + 2}
                  aria-level={node.depth + 1}
                  aria-expanded={node.children.length ? !closed : undefined}
                  aria-selected={node === chosen}
                  class={`span${node === chosen ? " span-on" : ""}${away ? " span-away" : ""}`}
                  onClick={() => props.onChoose(node)}
                >
                  <div
                    role="gridcell"
                    class="waterfall-name"
                    style={{ paddingLeft: `${8 + Math.min(node.depth, 24) * 12}px` }}
                  >
                    <button
                      type="button"
                      class={`twist${closed ? "" : " twist-open"}`}
                      tabIndex={-1}
                      aria-label={closed ? "Expand" : "Collapse"}
                      disabled={!node.children.length}
                      onClick={(event) => (event.stopPropagation(), props.onToggle(node))}
                    >
                      {node.children.length > 0 && <Icon name="right" />}
                    </button>
                    <i class="service-mark" style={{ background: color }} />
                    <span
                      class="waterfall-label"
                      title={`${isolate(span.service)}: ${isolate(span.name)}`}
                    >
                      <bdi class="service">{span.service}</bdi> <bdi>{span.name}</bdi>
                    </span>
                    {node.moved !== 0 && (
                      <span class="mark-moved" title={movedText(node)}>
                        <Icon name="clock" />
                      </span>
                    )}
                    {closed && node.below > 0 && <small class="count">+{count(node.below)}</small>}
                    {failed ? (
                      <span class="mark-error" title="Error">
                        !
                      </span>
                    ) : closed && node.errorBelow ? (
                      <span class="mark-error mark-below" title="Error in a descendant">
                        !
                      </span>
                    ) : null}
                  </div>
                  <div role="gridcell" class="waterfall-time">
                    {right >= 0 && left <= 100 && (
                      <>
                        <div
                          class={`bar${failed ? " bar-error" : ""}`}
                          style={{
                            left: `${Math.max(0, left)}%`,
                            width: `max(2px, ${Math.min(100, right) - Math.max(0, left)}%)`,
                            background: color,
                          }}
                        >
                          {span.profile && span.profile.cpu_ns > 0 && (
                            <b
                              style={{
                                width: `${Math.min(100, (span.profile.cpu_ns / Math.max(1, span.duration_ns)) * 100)}%`,
                              }}
                            />
                          )}
                        </div>
                        {props.critical &&
                          node.critical.map(([a, b]) =>
                            place(b) > 0 && place(a) < 100 ? (
                              <i
                                key={a}
                                class="critical"
                                style={{
                                  left: `${Math.max(0, place(a))}%`,
                                  width: `max(1px, ${Math.min(100, place(b)) - Math.max(0, place(a))}%)`,
                                }}
                              />
                            ) : null,
                          )}
                        {span.events?.slice(0, EVENTS_SHOWN).map((event, n) => {
                          const x = place(eventTime(props.tree, node, event.time_unix_ns));
                          return x >= 0 && x <= 100 ? (
                            <i
                              key={n}
                              class={`event${event.name === "exception" ? " event-error" : ""}`}
                              style={{ left: `${x}%` }}
                              title={event.name}
                            />
                          ) : null;
                        })}
                        <span
                          class="bar-text"
                          style={
                            right > 72
                              ? left > 18
                                ? { right: `${100 - Math.max(0, left)}%` }
                                : { left: `${Math.max(0, left)}%` }
                              : { left: `${Math.max(0, right)}%` }
                          }
                          data-in={right > 72 && left <= 18 ? "" : undefined}
                        >
                          {duration(span.duration_ns)}
                          {span.profile && span.profile.samples > 0 && (
                            <span
                              class="badge"
                              title={`${count(span.profile.samples)} samples, ${duration(span.profile.cpu_ns)} on CPU`}
                            >
                              <Icon name="flame" />
                            </span>
                          )}
                        </span>
                      </>
                    )}
                  </div>
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

/** Largest number of events that are marked on one bar; the details list all of them. */
const EVENTS_SHOWN = 50;

/** Returns the time of an event of a span in ns since the start of the trace. */
const eventTime = (tree: Tree, node: Node, unixNs: string): number =>
  Number(BigInt(unixNs) - tree.startUnixNs) + node.moved;

/** Labels at 1, 2 or 5 times a power of ten. */
function Ticks({ from, to }: { from: number; to: number }) {
  const [box, width] = useSize<HTMLDivElement>();
  const label = 52; // px, the longest
  const rough = Math.max(1, to - from) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((n) => n * power >= rough) ?? 10) * power;
  const ticks: number[] = [];
  const last = to - (to - from) * Math.min(1, label / (width || 1));
  for (let t = Math.ceil(from / step) * step; t < last; t += step) ticks.push(t);
  return (
    <div class="ticks" aria-hidden="true" ref={box}>
      {ticks.map((t) => (
        <span key={t} style={{ left: `${((t - from) / (to - from)) * 100}%` }}>
          {duration(t)}
        </span>
      ))}
    </div>
  );
}

/** All spans as thin lines; dragging selects the visible range. */
function Overview({ tree, dark, from, to, matches, onRange }: WaterfallProps) {
  const [box, width] = useSize<HTMLDivElement>();
  const canvas = useRef<HTMLCanvasElement>(null);
  const height = 28;
  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element || !width) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    element.style.width = `${width}px`;
    element.style.height = `${height}px`;
    const context = element.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    const rows = tree.nodes.length;
    const thick = Math.max(0.5, Math.min(3, (height - 2) / rows));
    for (const node of tree.nodes) {
      context.globalAlpha = matches && !matches.has(node) ? 0.15 : 0.9;
      context.fillStyle =
        node.span.status === "error"
          ? dark
            ? "#f87171"
            : "#dc2626"
          : serviceColor(node.span.service, dark);
      context.fillRect(
        (node.start / tree.duration) * width,
        1 + (node.index / rows) * (height - 2),
        Math.max(1, ((node.end - node.start) / tree.duration) * width),
        thick,
      );
    }
  }, [tree, width, dark, matches]);
  const drag = useRef<number | null>(null);
  const selection = useRef<HTMLDivElement>(null);
  const at = (event: PointerEvent): number => {
    const place = box.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - place.left) / place.width)) * tree.duration;
  };
  const whole = from <= 0 && to >= tree.duration;
  const show = (a: number, b: number): void => {
    if (!selection.current) return;
    selection.current.style.left = `${(Math.min(a, b) / tree.duration) * 100}%`;
    selection.current.style.width = `${(Math.abs(b - a) / tree.duration) * 100}%`;
  };
  return (
    <div
      class={`overview${whole ? "" : " overview-part"}`}
      ref={box}
      title={whole ? "Drag to zoom in" : "Double click to zoom out"}
      onPointerDown={(event) => {
        drag.current = at(event);
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => drag.current !== null && show(drag.current, at(event))}
      onPointerUp={(event) => {
        const begin = drag.current;
        drag.current = null;
        if (begin === null) return;
        const end = at(event);
        if (Math.abs(end - begin) > tree.duration * 0.005)
          onRange(Math.min(begin, end), Math.max(begin, end));
      }}
      onDblClick={() => onRange(0, tree.duration)}
    >
      <canvas ref={canvas} aria-hidden="true" />
      <div
        class="overview-selection"
        ref={selection}
        style={{
          left: `${(from / tree.duration) * 100}%`,
          width: `${((to - from) / tree.duration) * 100}%`,
        }}
      />
    </div>
  );
}
