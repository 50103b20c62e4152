// Threads that walk through the phases of a step together.
//
// A step is a fixed sequence of phases; a phase is a number of independent tasks. A phase is over when its tasks are
// done, not when every thread has arrived: a thread that the system has descheduled holds up only the task it is in,
// since the others take the rest of its share and go on, and it catches up by finding the phases it missed complete.
//
// Waiting spins for a bounded time and then sleeps, because the cores are shared with other processes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "simd.h"

namespace pagewire {

class ThreadPool;

// One thread's walk through a step.
class Worker {
  public:
    Worker(ThreadPool& pool, int index) : pool_(pool), index_(index) {}
    int index() const { return index_; }
    int threads() const;

    // Runs task(i) for i in [0, tasks) together with the other threads; returns when all are done.
    // `while_waiting()` is called while this thread has nothing left to do; it must be short.
    template <class Task, class Idle>
    void phase(int tasks, Task&& task, Idle&& while_waiting);
    template <class Task>
    void phase(int tasks, Task&& task) {
        phase(tasks, task, [] {});
    }

  private:
    friend class ThreadPool;
    ThreadPool& pool_;
    int index_;
    int next_phase_ = 0;
};

class ThreadPool {
  public:
    explicit ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads) {
        for (int i = 1; i < threads_; i++) workers_.emplace_back([this, i] { serve(i); });
    }
    ~ThreadPool() {
        stopping_.store(true);
        step_.fetch_add(1);
        step_.notify_all();
        for (auto& worker : workers_) worker.join();
    }
    ThreadPool(const ThreadPool&) = delete;
    int threads() const { return threads_; }

    // Runs `program` on every thread, the caller's included. Each must issue the same phases, at most `max_phases`.
    // A late thread may look at the program's data (to count tasks, not to run any) until the next call of `settle`.
    void run(int max_phases, std::function<void(Worker&)> program) {
        settle();
        reset(max_phases);
        program_ = std::move(program);
        open_.store(true);
        step_.fetch_add(1);
        step_.notify_all();
        Worker self(*this, 0);
        program_(self);
        open_.store(false);
    }

    // Waits for threads that still walk through the finished phases of the last step.
    void settle() {
        for (int spins = 0; active_.load() != 0; spins++) {
            if (spins < kSpins) relax();
            else std::this_thread::yield();
        }
    }

  private:
    friend class Worker;
    static constexpr int kSpins = 4000;  // of some 40 cycles: longer than a usual wait, shorter than a time slice

    struct alignas(64) Counter {
        std::atomic<uint32_t> value{0};
    };

    void reset(int phases) {
        size_t needed = (size_t)phases * (threads_ + 1);
        if (needed > size_) {
            counters_ = std::make_unique<Counter[]>(needed);
            size_ = needed;
        } else {
            for (size_t i = 0; i < needed; i++) counters_[i].value.store(0, std::memory_order_relaxed);
        }
    }

    Counter& done(int phase) { return counters_[(size_t)phase * (threads_ + 1)]; }
    Counter& taken(int phase, int thread) { return counters_[(size_t)phase * (threads_ + 1) + 1 + thread]; }

    void serve(int index) {
        uint32_t seen = 0;
        for (;;) {
            for (int spins = 0; spins < kSpins && step_.load(std::memory_order_acquire) == seen; spins++) relax();
            step_.wait(seen);
            seen = step_.load();
            if (stopping_.load()) return;
            active_.fetch_add(1);
            if (open_.load()) {
                Worker self(*this, index);
                program_(self);
            }
            active_.fetch_sub(1);
        }
    }

    const int threads_;
    std::vector<std::thread> workers_;
    std::unique_ptr<Counter[]> counters_;
    size_t size_ = 0;
    std::function<void(Worker&)> program_;
    alignas(64) std::atomic<uint32_t> step_{0};
    alignas(64) std::atomic<int> active_{0};
    std::atomic<bool> open_{false};
    std::atomic<bool> stopping_{false};
};

inline int Worker::threads() const { return pool_.threads(); }

template <class Task, class Idle>
void Worker::phase(int tasks, Task&& task, Idle&& while_waiting) {
    const int phase = next_phase_++;
    const int threads = pool_.threads_;
    uint32_t mine = 0;
    for (int i = 0; i < threads; i++) {  // first this thread's own share, then what others have left
        const int owner = (index_ + i) % threads;
        const int begin = (int)((int64_t)tasks * owner / threads);
        const uint32_t share = (int)((int64_t)tasks * (owner + 1) / threads) - begin;
        auto& taken = pool_.taken(phase, owner).value;
        if (taken.load(std::memory_order_relaxed) >= share) continue;
        for (uint32_t next; (next = taken.fetch_add(1, std::memory_order_relaxed)) < share; mine++) task(begin + (int)next);
    }
    auto& done = pool_.done(phase).value;
    uint32_t count = mine ? done.fetch_add(mine, std::memory_order_acq_rel) + mine : done.load(std::memory_order_acquire);
    if (mine && count == (uint32_t)tasks && threads > 1) done.notify_all();
    for (int spins = 0; (count = done.load(std::memory_order_acquire)) < (uint32_t)tasks; spins++) {
        if (spins < ThreadPool::kSpins) {
            while_waiting();
            relax();
        } else {
            done.wait(count);
        }
    }
}

}  // namespace pagewire
