// SPDX-License-Identifier: Apache-2.0
// A profile as tables: functions by self and total, and the call tree.
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { packageColor } from "../color";
import { amount, difference, fileHint, packageOf, percent, shortName } from "../format";
import { Icon, useWindow } from "../parts/basics";
import {
  changeOf,
  fileOf,
  functionsOf,
  isNoise,
  nameOf,
  type Flame,
  type FunctionRow,
  type Matches,
} from "./model";

const rowHeight = 26;

interface TableProps {
  /** Names of the sides A and B of a comparison. */
  sides?: [string, string];
  relative: boolean;
  flame: Flame;
  unit: string;
  dark: boolean;
  matches: Matches | null;
  chosen: string;
  onChoose: (name: string) => void;
}

type SortKey = "self" | "total" | "name" | "left" | "right" | "change";

export function FunctionTable({
  flame,
  unit,
  dark,
  relative,
  matches,
  chosen,
  onChoose,
  sides: sideNames,
}: TableProps) {
  const [sort, setSort] = useState<SortKey>(flame.sides ? "change" : "self");
  const [up, setUp] = useState(false);
  const sides = flame.sides;
  const all = flame.width || 1;
  const leftAll = (relative && sides?.leftTotal) || 1;
  const rightAll = (relative && sides?.rightTotal) || 1;
  // Computed after the flame graph next to the table is drawn. Rows of another flame graph do not fit its names.
  const [computed, setComputed] = useState<{ of: Flame; rows: FunctionRow[] } | null>(null);
  const rows = computed?.of === flame ? computed.rows : [];
  useEffect(() => {
    // All functions are listed if one is chosen. Otherwise a search limits the list to matches.
    const found = chosen && flame.names.includes(chosen) ? null : matches;
    const list = functionsOf(flame).filter((row) => !found || found.names[row.name]);
    const change = (left: number, right: number): number =>
      Math.abs(right / rightAll - left / leftAll);
    const order = {
      self: (a, b) => b.self - a.self,
      total: (a, b) => b.total - a.total,
      name: (a, b) => (flame.names[a.name] < flame.names[b.name] ? -1 : 1),
      left: (a, b) => b.left - a.left,
      right: (a, b) => b.right - a.right,
      change: (a, b) => change(b.left, b.right) - change(a.left, a.right),
    } satisfies Record<SortKey, (a: (typeof list)[0], b: (typeof list)[0]) => number>;
    list.sort(order[sort]);
    setComputed({ of: flame, rows: up ? list.reverse() : list });
  }, [flame, matches, sort, up, relative]);
  const view = useWindow(rows.length, rowHeight);
  const head = (key: SortKey, text: string, number = true, title = "") => (
    <div
      role="columnheader"
      class={number ? "number" : ""}
      aria-sort={sort === key ? (up !== (key === "name") ? "ascending" : "descending") : "none"}
    >
      <button
        type="button"
        class="plain"
        title={title || undefined}
        onClick={() => (sort === key ? setUp(!up) : (setSort(key), setUp(false)))}
      >
        {text}
        {sort === key && <span aria-hidden="true">{up ? " ↑" : " ↓"}</span>}
      </button>
    </div>
  );
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = rows.findIndex((row) => flame.names[row.name] === chosen);
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!step || !rows.length) return;
    event.preventDefault();
    const next = Math.min(rows.length - 1, Math.max(0, at + step));
    onChoose(flame.names[rows[next].name]);
    view.reveal(next);
  };
  return (
    <div
      class={`table functions${sides ? " functions-two" : ""}`}
      role="table"
      aria-label="Functions"
      aria-rowcount={rows.length + 1}
    >
      <div class="table-head" role="row">
        {head("name", "Function", false)}
        {sides ? (
          <>
            {head("left", "A self", true, sideNames && `A: ${sideNames[0]}`)}
            {head("right", "B self", true, sideNames && `B: ${sideNames[1]}`)}
            {head("change", "Change")}
          </>
        ) : (
          <>
            {head("self", "Self")}
            {head("total", "Total")}
          </>
        )}
      </div>
      <div
        class="table-body"
        role="rowgroup"
        ref={view.box}
        tabIndex={0}
        aria-label="Functions; use the arrow keys to select one"
        onScroll={view.onScroll}
        onKeyDown={onKeyDown}
      >
        <div style={{ height: `${rows.length * rowHeight}px` }} role="presentation">
          <div style={{ transform: `translateY(${view.from * rowHeight}px)` }} role="presentation">
            {rows.slice(view.from, view.to).map((row, i) => {
              const name = flame.names[row.name];
              const delta = isNoise(flame, row.left, row.right, relative)
                ? 0
                : row.right / rightAll - row.left / leftAll;
              return (
                <div
                  class={`row${name === chosen ? " row-on" : ""}`}
                  role="row"
                  key={row.name}
                  aria-rowindex={view.from + i + 2}
                  onClick={() => onChoose(name === chosen ? "" : name)}
                  title={name}
                >
                  <div role="cell" class="function">
                    <i
                      style={{
                        background: packageColor(
                          packageOf(name, flame.files[row.name] ?? ""),
                          dark,
                        ),
                      }}
                    />
                    <span>
                      <bdi>{shortName(name)}</bdi>{" "}
                      <small>
                        <bdi>{fileHint(name, flame.files[row.name] ?? "")}</bdi>
                      </small>
                    </span>
                  </div>
                  {sides ? (
                    <>
                      <div role="cell" class="number">
                        {amount(row.left, unit)}
                      </div>
                      <div role="cell" class="number">
                        {amount(row.right, unit)}
                      </div>
                      <div
                        role="cell"
                        class={`number ${delta > 0 ? "more" : delta < 0 ? "less" : "quiet"}`}
                      >
                        {difference(row.left, row.right, leftAll, rightAll, unit, relative)}
                      </div>
                    </>
                  ) : (
                    <>
                      <Share value={row.self} all={all} unit={unit} />
                      <Share value={row.total} all={all} unit={unit} />
                    </>
                  )}
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

function Share({ value, all, unit }: { value: number; all: number; unit: string }) {
  return (
    <div role="cell" class="number share">
      <b style={{ width: `${Math.min(100, (value / all) * 100)}%` }} />
      <span>{amount(value, unit)}</span>
      <small>{percent(value / all)}</small>
    </div>
  );
}

/** The calls as an indented tree with columns for function, time and percentage. */
export function CallTree({ flame, unit, dark, relative, matches, chosen, onChoose }: TableProps) {
  const [open, setOpen] = useState<Set<number>>(new Set());
  const [focus, setFocus] = useState(0);
  useLayoutEffect(() => {
    // The path with the highest values is expanded at the start.
    const path = new Set<number>([0]);
    let at = 0;
    while (flame.n && flame.last[at] > flame.first[at]) {
      let best = flame.first[at];
      for (let i = best; i < flame.last[at]; i++) if (flame.total[i] > flame.total[best]) best = i;
      if (flame.total[best] < 0.25 * flame.total[at]) break;
      path.add(best);
      at = best;
    }
    setOpen(path);
    setFocus(0);
  }, [flame]);
  const holds = useMemo(() => {
    if (!matches) return null;
    const marks = new Uint8Array(flame.n);
    for (let i = flame.n - 1; i >= 0; i--) {
      if (matches.names[flame.name[i]]) marks[i] = 1;
      if (marks[i] && flame.parent[i] >= 0) marks[flame.parent[i]] = 1;
    }
    return marks;
  }, [flame, matches]);
  const rows = useMemo(() => {
    const list: number[] = [];
    const stack = flame.n ? [0] : [];
    while (stack.length) {
      const i = stack.pop()!;
      if (holds && !holds[i]) continue;
      list.push(i);
      if (!open.has(i) && !holds) continue;
      const children: number[] = [];
      for (let child = flame.first[i]; child < flame.last[i]; child++) children.push(child);
      children.sort((a, b) => flame.total[a] - flame.total[b]);
      stack.push(...children);
    }
    return list;
  }, [flame, open, holds]);
  const view = useWindow(rows.length, rowHeight);
  const all = flame.width || 1;
  const toggle = (i: number, on = !open.has(i)): void => {
    const next = new Set(open);
    if (on) next.add(i);
    else next.delete(i);
    setOpen(next);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = Math.max(0, rows.indexOf(focus));
    const move = (row: number): void => {
      const to = Math.min(rows.length - 1, Math.max(0, row));
      setFocus(rows[to]);
      view.reveal(to);
    };
    if (event.key === "ArrowDown") move(at + 1);
    else if (event.key === "ArrowUp") move(at - 1);
    else if (event.key === "ArrowRight" && open.has(focus)) move(at + 1);
    else if (event.key === "ArrowRight") toggle(focus, true);
    else if (event.key === "ArrowLeft" && open.has(focus) && flame.last[focus] > flame.first[focus])
      toggle(focus, false);
    else if (event.key === "ArrowLeft") move(rows.indexOf(flame.parent[focus]));
    else if (event.key === "Enter") onChoose(nameOf(flame, focus));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      class="table tree"
      role="treegrid"
      aria-label="Call tree"
      aria-rowcount={rows.length + 1}
      tabIndex={0}
      onKeyDown={onKeyDown}
      aria-activedescendant={`call${focus}`}
    >
      <div class="table-head" role="row">
        <div role="columnheader">Function</div>
        <div role="columnheader" class="number">
          {flame.sides ? "Change" : "Self"}
        </div>
        <div role="columnheader" class="number">
          {unit === "nanoseconds" ? "Time" : "Total"}
        </div>
        <div role="columnheader" class="number">
          Percentage
        </div>
      </div>
      <div class="table-body" role="rowgroup" ref={view.box} onScroll={view.onScroll}>
        <div style={{ height: `${rows.length * rowHeight}px` }} role="presentation">
          <div style={{ transform: `translateY(${view.from * rowHeight}px)` }} role="presentation">
            {rows.slice(view.from, view.to).map((i, at) => {
              const name = nameOf(flame, i);
              const leaf = flame.last[i] === flame.first[i];
              const sides = flame.sides;
              const noise = sides && isNoise(flame, sides.left[i], sides.right[i], relative);
              const change = noise ? 0 : changeOf(flame, i, relative);
              return (
                <div
                  class={`row${i === focus ? " row-focus" : ""}${name === chosen ? " row-on" : ""}`}
                  role="row"
                  key={i}
                  id={`call${i}`}
                  aria-rowindex={view.from + at + 2}
                  aria-level={flame.level[i] + 1}
                  aria-expanded={leaf ? undefined : open.has(i) || holds !== null}
                  onClick={() => {
                    setFocus(i);
                    toggle(i);
                  }}
                  title={name}
                >
                  <div
                    role="gridcell"
                    class="function"
                    style={{ paddingLeft: `${Math.min(flame.level[i], 40) * 12}px` }}
                  >
                    <span class={`twist${open.has(i) || holds ? " twist-open" : ""}`}>
                      {!leaf && <Icon name="right" />}
                    </span>
                    <i
                      style={{ background: packageColor(packageOf(name, fileOf(flame, i)), dark) }}
                    />
                    <span class={matches?.names[flame.name[i]] ? "match" : ""}>
                      <bdi>{shortName(name)}</bdi>{" "}
                      <small>
                        <bdi>{fileHint(name, fileOf(flame, i))}</bdi>
                      </small>
                    </span>
                  </div>
                  <div
                    role="gridcell"
                    class={`number ${change > 0 ? "more" : change < 0 ? "less" : "quiet"}`}
                  >
                    {sides
                      ? difference(
                          sides.left[i],
                          sides.right[i],
                          sides.leftTotal,
                          sides.rightTotal,
                          unit,
                          relative,
                        )
                      : amount(flame.self[i], unit)}
                  </div>
                  <div role="gridcell" class="number">
                    {sides ? amount(sides.right[i], unit) : amount(flame.total[i], unit)}
                  </div>
                  <div role="gridcell" class="number share">
                    <b style={{ width: `${Math.min(100, (flame.total[i] / all) * 100)}%` }} />
                    <span>{percent(flame.total[i] / all)}</span>
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
