// Reading ahead in the shadow of products: while a product keeps the multipliers busy, memory has little to do, and
// attention, which comes after it, does hardly anything but read. So products fetch what attention will read, a line now
// and then. The lines go through the L2 cache into L3, which on these processors takes what L2 drops.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <vector>

#include "simd.h"

namespace pagewire {

constexpr size_t kLine = 64;

// Memory that is wanted soon; one thread's.
class ReadAhead {
  public:
    struct Run {
        const char* from;
        size_t bytes;
    };
    // What to fetch next, line by line.
    struct Stretch {
        const char* from;
        ptrdiff_t step;
    };

    // Fetches `runs`, which must stay as they are until `stop`, each shifted by `offset` bytes.
    void start(const std::vector<Run>& runs, ptrdiff_t offset) {
        next_ = runs.data(), end_ = next_ + runs.size(), offset_ = offset, at_ = 0;
    }

    // Nothing of it is wanted any more.
    void stop() { next_ = end_ = nullptr; }

    bool is_done() const { return next_ == end_; }

    // The next `lines`; those behind the end of a run may belong to nothing. Every other call gives one line again and
    // again: faster than that, weights had to wait for what is fetched here.
    PW_INLINE Stretch take(int lines) {
        rests_ = !rests_;
        if (rests_ || is_done()) return {nothing_, 0};
        const char* from = next_->from + offset_ + at_;
        at_ += lines * kLine;
        if (at_ >= next_->bytes) next_++, at_ = 0;
        return {from, kLine};
    }

    // What one thread of `threads` may fetch before it is used: together half of the L3 cache, so that most is still there.
    static size_t most_bytes(int threads) {
        static const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
        return cache > 0 ? (size_t)cache / 2 / threads : 0;
    }

  private:
    alignas(kLine) char nothing_[kLine] = {};
    const Run* next_ = nullptr;
    const Run* end_ = nullptr;
    ptrdiff_t offset_ = 0;
    size_t at_ = 0;  // bytes of the run that are fetched
    bool rests_ = false;
};

}  // namespace pagewire
