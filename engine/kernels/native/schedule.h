// What the attention phase of a step does, worked out once and used by every layer.
#pragma once

#include <algorithm>
#include <vector>

#include "attention_prefill.h"
#include "model.h"

namespace pagewire {

// Attention of one KV head for a part of one row.
struct AttentionTask {
    int row, head;
    int begin, end;    // prefill: query tokens (of the batch); decode: positions of the row's sequence
    int part = -1;     // decode of a sequence that is cut into parts: index of the first of the task's results
    bool decode;
    bool wanted;       // some of its tokens are kept to the end: without any the last layer leaves it out
    int64_t cost;
};

// Results that belong together: parts [first, first + parts * pieces).
struct Merge {
    int row, head, first, parts;
};

// Query heads of a KV head are done kMaxHeads at a time.
inline int head_pieces(const Config& c) { return (c.heads / c.kv_heads + kMaxHeads - 1) / kMaxHeads; }

struct Schedule {
    Batch batch;
    std::vector<char> clears;  // of each token: it is the last one that a block gets in this step, and the first step to write it
    std::vector<AttentionTask> tasks;
    std::vector<Merge> merges;
    std::vector<std::vector<ReadAhead::Run>> reads;  // by thread: what its decodes read of the cache of layer 0, or its beginning
    int longest = 0;                                 // sequence that is decoded
    int parts = 0;

    void build(const Config& c, const KvCache& cache, const Batch& b, int threads) {
        batch = b;
        tasks.clear(), merges.clear();
        clears.assign(b.tokens, 0);
        parts = longest = 0;
        for (int row = 0; row < b.rows; row++) {
            const int last = b.query_starts[row + 1] - 1;
            clears[last] = last > b.query_starts[row] || b.slot_mapping[last] % kBlockTokens == 0;
            if (b.query_starts[row + 1] - b.query_starts[row] == 1) add_decode(c, row, threads);
            else add_prefill(c, row);
        }
        balance(threads);
        reads.resize(threads);
        for (int thread = 0; thread < threads; thread++) plan_reads(cache, thread, threads);
    }

  private:
    static constexpr int kPrefillRows = 96;      // query tokens x heads of a task
    static constexpr int kPartTokens = 256;      // a sequence is cut into parts no shorter than this,
    static constexpr int kTasksPerThread = 4;    // and only while there are fewer tasks than this

    void add_decode(const Config& c, int row, int threads) {
        const int length = batch.seq_lens[row];
        longest = std::max(longest, length);
        const int wanted = (kTasksPerThread * threads + batch.rows * c.kv_heads - 1) / (batch.rows * c.kv_heads);
        const int cuts = std::clamp(length / kPartTokens, 1, wanted);
        const int size = (length + cuts * kGroupTokens - 1) / (cuts * kGroupTokens) * kGroupTokens;
        const int count = (length + size - 1) / size;
        for (int head = 0; head < c.kv_heads; head++) {
            if (count > 1) merges.push_back({row, head, parts, count});
            for (int i = 0; i < count; i++) {
                const int end = std::min(length, (i + 1) * size);
                tasks.push_back({row, head, i * size, end, count > 1 ? parts : -1, true, true, end - i * size});
                if (count > 1) parts += head_pieces(c);
            }
        }
    }

    void add_prefill(const Config& c, int row) {
        const int begin = batch.query_starts[row], end = batch.query_starts[row + 1];
        const int step = std::max(4, kPrefillRows / (c.heads / c.kv_heads));
        const int before = batch.seq_lens[row] - (end - begin);
        for (int token = begin; token < end; token += step) {
            const int last = std::min(end, token + step);
            for (int head = 0; head < c.kv_heads; head++)
                tasks.push_back({row, head, token, last, -1, false, any_wanted(token, last),
                                 (int64_t)(last - token) * (before + last - begin)});
        }
    }

    bool any_wanted(int begin, int end) const {
        for (int row = 0; row < batch.kept_rows(); row++)
            if (batch.kept_token(row) >= begin && batch.kept_token(row) < end) return true;
        return false;
    }

    // Longest first, dealt out in turn: threads take contiguous shares, so turn the deal into their order.
    void balance(int threads) {
        std::stable_sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.cost > b.cost; });
        std::vector<AttentionTask> dealt;
        dealt.reserve(tasks.size());
        for (int thread = 0; thread < threads; thread++)
            for (size_t i = thread; i < tasks.size(); i += threads) dealt.push_back(tasks[i]);
        tasks.swap(dealt);
    }

    void plan_reads(const KvCache& cache, int thread, int threads) {
        auto& runs = reads[thread];
        runs.clear();
        const size_t tile = cache.tile_bytes(), most = ReadAhead::most_bytes(threads) / tile;
        const size_t first = tasks.size() * thread / threads, last = tasks.size() * (thread + 1) / threads;
        for (size_t i = first; i < last; i++) {
            const AttentionTask& task = tasks[i];
            if (!task.decode) continue;
            const int32_t* blocks = batch.block_tables + (size_t)task.row * batch.max_blocks;
            for (int b = task.begin / kBlockTokens; b * kBlockTokens < task.end; b++) {
                if (runs.size() == most) return;
                runs.push_back({cache.tile(0, blocks[b], task.head), tile});
            }
        }
    }
};

}  // namespace pagewire
