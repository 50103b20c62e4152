// Large buffers on huge pages: weights and the KV cache are read end to end, and small pages cost as much as the data.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

namespace pagewire {

// Has the system give the memory behind [at, at + bytes) now and not when it is first touched. False if it cannot.
inline bool populate(char* at, size_t bytes) {
#if defined(__linux__)
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
    const size_t page = 4096, skip = (size_t)at % page;
    return madvise(at - skip, (bytes + skip + page - 1) / page * page, kPopulateWrite) == 0;
#else
    return false;
#endif
}

class HugeBuffer {
  public:
    HugeBuffer() = default;
    HugeBuffer(const HugeBuffer&) = delete;
    HugeBuffer& operator=(const HugeBuffer&) = delete;
    ~HugeBuffer() { release(); }

    // Zeroed memory; throws std::bad_alloc. A spare tail lets kernels prefetch and read whole vectors past the end.
    void allocate(size_t bytes) {
        release();
        const size_t page = (size_t)2 << 20;
        mapped_ = (bytes + kTail + 2 * page - 1) / page * page;
        base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base_ == MAP_FAILED) {
            base_ = nullptr;
            throw std::bad_alloc();
        }
#if defined(MADV_HUGEPAGE)
        // Small buffers share no page with others, so a huge page each would be mostly wasted.
        if (bytes >= page) madvise(base_, mapped_, MADV_HUGEPAGE);
#endif
        data_ = bytes >= page ? (void*)(((size_t)base_ + page - 1) / page * page) : base_;
    }
    void* data() const { return data_; }

  private:
    static constexpr size_t kTail = 4096;
    void release() {
        if (base_) munmap(base_, mapped_);
        base_ = data_ = nullptr;
    }
    void* base_ = nullptr;
    void* data_ = nullptr;
    size_t mapped_ = 0;
};

}  // namespace pagewire
