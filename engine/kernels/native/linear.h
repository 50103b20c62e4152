// A projection: packed weights, the kernels for its number format, and its work cut into tasks of a phase.
#pragma once

#include <algorithm>
#include <functional>

#include "gemm.h"
#include "gemm_int8.h"
#include "memory.h"
#include "thread_pool.h"

namespace pagewire {

enum class Format : int32_t { kBf16 = 0, kInt8 = 1, kInt8WeightOnly = 2 };

// Rows that go into a projection, in the form its format wants (the other pointers are unused).
struct Activations {
    bf16* values = nullptr;  // [rows, k]
    QuantizedRows quantized;
};

struct Linear {
    Format format = Format::kBf16;
    int n = 0, k = 0;
    HugeBuffer weights;         // panels, see gemm.h and gemm_int8.h
    std::vector<float> scales;  // int8: of each column, [panels * 32]; weight-only: [panels, k / kGroup, 32]
    std::vector<float> bias;    // empty or one for each column, padded

    int panels() const { return (n + kPanel - 1) / kPanel; }
    size_t panel_bytes() const { return (size_t)k * kPanel * (format == Format::kBf16 ? 2 : 1); }
    const char* panel(int p) const { return (const char*)weights.data() + panel_bytes() * p; }
    WideningReader widening_reader(int p) const {
        return {(const int8_t*)panel(p), scales.data() + (size_t)p * (k / kGroup) * kPanel};
    }

    // Packs row-major float32 weights [n, k]. Column j of the result is row row_of(j), or zero where that is negative.
    void pack(const float* source, const float* source_bias, int n_, int k_, Format format_,
              const std::function<int(int)>& row_of);
};

inline void Linear::pack(const float* source, const float* source_bias, int n_, int k_, Format format_,
                         const std::function<int(int)>& row_of) {
    format = format_, n = n_, k = k_;
    weights.allocate(panel_bytes() * panels());
    const size_t panel_scales = format == Format::kInt8WeightOnly ? (size_t)k / kGroup * kPanel : kPanel;
    if (format != Format::kBf16) scales.assign(panels() * panel_scales, 0.0f);
    if (source_bias) bias.assign((size_t)panels() * kPanel, 0.0f);
    for (int column = 0; column < n; column++) {
        const int row = row_of(column), lane = column % kPanel;
        if (row < 0) continue;  // zero bytes: a column that nothing uses
        const float* values = source + (size_t)row * k;
        if (source_bias) bias[column] = source_bias[row];
        char* panel = (char*)weights.data() + panel_bytes() * (column / kPanel);
        if (format == Format::kBf16) {
            bf16* to = (bf16*)panel;
            for (int i = 0; i < k; i++) to[((size_t)i / 2 * kPanel + lane) * 2 + i % 2] = to_bf16(values[i]);
        } else if (format == Format::kInt8) {
            scales[column] = pack_dynamic(values, k, (uint8_t*)panel, lane);
        } else {
            pack_weight_only(values, k, (int8_t*)panel, lane, &scales[column / kPanel * panel_scales]);
        }
    }
}

// A product cut into tasks: blocks of rows whose activations fit the L2 cache, by one or more panels. `unit`: how many
// panels stay together, because what becomes of their results needs all of them.
struct Grid {
    const Linear& linear;
    int rows, row_blocks, panels_per_task, tasks_per_block;

    Grid(const Linear& linear_, int rows_, int threads, int unit = 1) : linear(linear_), rows(rows_) {
        const int most = block_rows(linear.k);
        row_blocks = (rows + most - 1) / most;
        // Some eight tasks a thread even out what the threads do; a smaller task is not worth its atomic.
        panels_per_task = rows > 64 ? unit : std::max(1, linear.panels() / (8 * threads * unit)) * unit;
        tasks_per_block = (linear.panels() + panels_per_task - 1) / panels_per_task;
    }
    int tasks() const { return row_blocks * tasks_per_block; }
    // Rows of a block, at most.
    static int block_rows(int k) { return std::max(kTileRows, (int)(400 * 1024 / (2 * (size_t)k))); }
};

// Where reading goes on while a thread waits, so that memory never idles: the weights of a later phase.
class Warmup {
  public:
    static constexpr size_t kMost = 192 * 1024;  // bytes per thread: a part of the L2 cache

    // This thread's share of the panels of `next`, from its beginning.
    Warmup(const Linear* next, int thread, int threads) {
        if (!next) return;
        const size_t begin = (size_t)next->panels() * thread / threads, end = (size_t)next->panels() * (thread + 1) / threads;
        at_ = next->panel((int)begin);
        end_ = at_ + std::min(kMost, (end - begin) * next->panel_bytes());
    }
    void operator()() {
        for (int i = 0; i < 4 && at_ < end_; i++, at_ += 64) prefetch_l2(at_);
    }

  private:
    const char* at_ = nullptr;
    const char* end_ = nullptr;
};

constexpr ptrdiff_t kStreamAhead = 6144;  // bytes: how far before use a panel that is read once is fetched

// A tile of rows [begin, begin + rows), number `index` of `count` that use the same panel.
struct Tile {
    int begin, rows, index, count;
};

// Up to this many rows, weight-only panels are widened in registers: beyond, it is done once for all tiles.
constexpr int kWidenRows = 4;

// Computes one tile of panel `p` into out [rows, 32], without column scales and bias. `widened`: see widen_panel.
template <Reading How>
void panel_tile(const Linear& linear, int p, const bf16* widened, const Activations& a, const Tile& t, ReadAhead& later,
                float* out) {
    const char* panel = linear.panel(p);
    const size_t bytes = linear.panel_bytes();
    const int steps = linear.k / (linear.format == Format::kInt8 ? 4 : 2);
    Ahead ahead{panel + kStreamAhead, (ptrdiff_t)(bytes / steps), &later};
    if (How != Reading::kStream) ahead = {panel + bytes + bytes * t.index / t.count, (ptrdiff_t)(bytes / steps / t.count), &later};
    const bf16* values = a.values + (size_t)t.begin * linear.k;
    if (linear.format == Format::kInt8) {
        int8_rows<How>(t.rows, a.quantized.from(0, t.begin), (const uint8_t*)panel, linear.k, ahead, out);
    } else if (linear.format == Format::kInt8WeightOnly && !widened) {
        bf16_rows<Reading::kStream, std::min(kWidenRows, kTileRows)>(t.rows, values, linear.widening_reader(p), linear.k, ahead, out);
    } else {
        bf16_rows<How>(t.rows, values, Bf16Reader(widened ? widened : (const bf16*)panel), linear.k, ahead, out);
    }
}

// Where in a product a tile's results lie: row `row`, which is number `index` of its block, columns of panel `panel`.
struct Place {
    int row, index, panel;
};

// What becomes of a product. where(place): the address that put(place, columns 0-15, columns 16-31) will write to, so that
// it is fetched while the tile is computed. done(panel, first row, rows) is called once a panel is through with a block.
template <class Where, class Put, class Done>
struct Finish {
    Where where;
    Put put;
    Done done;
};
constexpr auto kNothing = [](int, int, int) {};

// Runs one task of the grid; `later` is fetched meanwhile.
template <class Finish>
void linear_task(const Grid& grid, int task, const Activations& a, ReadAhead& later, Finish&& finish) {
    const Linear& linear = grid.linear;
    const int block = task / grid.tasks_per_block;
    const int first_panel = task % grid.tasks_per_block * grid.panels_per_task;
    const int last_panel = std::min(first_panel + grid.panels_per_task, linear.panels());
    const int row_begin = (int)((int64_t)grid.rows * block / grid.row_blocks);
    const int count = (int)((int64_t)grid.rows * (block + 1) / grid.row_blocks) - row_begin;
    const int most = linear.format == Format::kInt8 ? kTileRowsInt8 : kTileRows;
    const int tiles = (count + most - 1) / most;
    alignas(64) float out[kTileRows * kPanel];
    for (int p = first_panel; p < last_panel; p++) {
        f32x16 scale0 = splat(1.0f), scale1 = scale0, bias0{}, bias1{};
        if (linear.format == Format::kInt8) scale0 = load(&linear.scales[p * kPanel]), scale1 = load(&linear.scales[p * kPanel + 16]);
        if (!linear.bias.empty()) bias0 = load(&linear.bias[p * kPanel]), bias1 = load(&linear.bias[p * kPanel + 16]);
        const bool widen = linear.format == Format::kInt8WeightOnly && count > std::min(kWidenRows, kTileRows);
        const bf16* widened = widen ? widen_panel(linear.widening_reader(p), linear.k) : nullptr;
        for (int t = 0; t < tiles; t++) {
            const int begin = row_begin + count * t / tiles, end = row_begin + count * (t + 1) / tiles;
            for (int row = begin; row < end; row++) {
                const char* at = (const char*)finish.where(Place{row, row - row_begin, p});
                prefetch_to_write(at);
                prefetch_to_write(at + 64);
            }
            const Tile tile{begin, end - begin, t, tiles};
            if (tiles == 1) panel_tile<Reading::kStream>(linear, p, widened, a, tile, later, out);
            else if (later.is_done()) panel_tile<Reading::kNear>(linear, p, widened, a, tile, later, out);
            else panel_tile<Reading::kNearFetchLater>(linear, p, widened, a, tile, later, out);
            for (int row = begin; row < end; row++) {
                const float* from = out + (row - begin) * kPanel;
                finish.put(Place{row, row - row_begin, p}, load(from) * scale0 + bias0, load(from + 16) * scale1 + bias1);
            }
        }
        finish.done(p, row_begin, count);
    }
}

// The whole product as a phase.
template <class Finish>
void linear_phase(Worker& worker, const Linear& linear, int rows, const Activations& a, const Linear* next, int unit,
                  ReadAhead& later, Finish&& finish) {
    const Grid grid(linear, rows, worker.threads(), unit);
    worker.phase(
        grid.tasks(), [&](int task) { linear_task(grid, task, a, later, finish); },
        Warmup(next, worker.index(), worker.threads()));
}

}  // namespace pagewire
