#include "network.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "products.h"

namespace tidelog {
namespace {

constexpr long WORK_OF_A_THREAD = 2'000'000;  // multiplications and additions: some 10 microseconds
constexpr long MOST_KEPT = 4'000'000;         // floats of a block that stays after a call
constexpr int PATIENCE = 1'000;                // looks at a counter before the thread lets others run

// Memory of a thread, which stays for its next call.
class Room {
 public:
  float* take(long floats) {
    if (next_ == blocks_.size()) blocks_.emplace_back();
    Block& block = blocks_[next_++];
    if (block.size < floats) {
      block.size = (floats + 1023) / 1024 * 1024;
      block.memory.reset(static_cast<float*>(std::aligned_alloc(4096, block.size * sizeof(float))));
      if (!block.memory) throw std::bad_alloc();
    }
    return block.memory.get();
  }
  std::uint32_t* take_pairs(long count) { return reinterpret_cast<std::uint32_t*>(take(count)); }
  void clear() {
    for (Block& block : blocks_)
      if (block.size > MOST_KEPT) block = Block();
    next_ = 0;
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<float, Free> memory;
    long size = 0;
  };
  std::vector<Block> blocks_;
  std::size_t next_ = 0;
};

float* panel(long floats) {
  static thread_local Room room;
  room.clear();
  return room.take(floats);
}

Room& room_of_caller() {
  static thread_local Room room;
  room.clear();
  return room;
}

// Stages one after the other; the parts of a stage are done by whoever takes them, and all of them before the next.
class Job : public std::enable_shared_from_this<Job> {
 public:
  void add(long parts, std::function<void(long)> part) {
    stages_.push_back(std::make_unique<Stage>(parts, std::move(part)));
  }
  void run(const Pool& pool, long work) {
    long most = 0;  // parts of a stage: more threads would only wait
    for (const auto& stage : stages_) most = std::max(most, stage->parts);
    const long threads = std::min({pool.threads, most, 1 + work / WORK_OF_A_THREAD});
    for (long i = 1; i < threads; i++) pool.schedule([job = shared_from_this()] { job->take_part(); });
    take_part();
  }

 private:
  struct Stage {
    Stage(long parts, std::function<void(long)> part) : parts(parts), part(std::move(part)) {}
    const long parts;
    const std::function<void(long)> part;
    std::atomic<long> next{0}, done{0};
  };

  void take_part() noexcept {
    for (const auto& stage : stages_) {
      for (long part; (part = stage->next.fetch_add(1, std::memory_order_relaxed)) < stage->parts;) {
        stage->part(part);
        stage->done.fetch_add(1, std::memory_order_release);
      }
      for (int looks = 0; stage->done.load(std::memory_order_acquire) < stage->parts; looks++)
        looks < PATIENCE ? _mm_pause() : (void)sched_yield();
    }
  }

  std::vector<std::unique_ptr<Stage>> stages_;
};

long half(long count) { return (count + 1) / 2; }

struct Kernels {
  const Products& exact;
  const RoundedProducts* rounded;  // null: none

  explicit Kernels(const Network& n)
      : exact(n.instructions == Instructions::avx2 ? avx2 : avx512), rounded(n.rounded ? &avx512_bf16 : nullptr) {}
  const RoundedProducts* of(long outputs) const { return outputs > 1 ? rounded : nullptr; }
};

}  // namespace

Instructions of_this_processor() {
  static const Instructions best = [] {
    const auto all = [](auto... has) { return (has && ...); };
    if (!all(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"))) return Instructions::none;
    if (!all(__builtin_cpu_supports("avx512f"), __builtin_cpu_supports("avx512vl"), __builtin_cpu_supports("avx512bw"),
             __builtin_cpu_supports("avx512dq")))
      return Instructions::avx2;
    return __builtin_cpu_supports("avx512bf16") ? Instructions::avx512_bf16 : Instructions::avx512;
  }();
  return best;
}

void forward(const Network& n, const float* x, const std::vector<float*>& outputs, const Pool& pool) {
  const Kernels kernels(n);
  const auto job = std::make_shared<Job>();
  Room& room = room_of_caller();
  const long rows = n.rows, layers = n.weights.size();
  std::uint32_t* pairs = n.rounded ? room.take_pairs(rows * half(*std::max_element(n.sizes.begin(), n.sizes.end()))) : nullptr;
  long work = 0;
  for (long l = 0; l < layers; l++) {
    const long I = n.sizes[l], O = n.sizes[l + 1];
    float* y = outputs[l] ? outputs[l] : room.take(rows * O);
    const Forward f{x, n.weights[l], n.biases[l], y, rows, I, O, l + 1 < layers || n.relu_last, pairs};
    const RoundedProducts* rounded = kernels.of(O);
    const Products& products = rounded ? rounded->products : kernels.exact;
    if (rounded)
      job->add(ROW_PARTS, [=](long part) { rounded->along_rows(f.x, pairs, I, share(rows, part), share(rows, part + 1)); });
    job->add(products.parts(O), [=, &products](long part) {
      products.forward(f, part, panel(I * products.panel));
    });
    work += 2 * rows * I * O;
    x = y;
  }
  job->run(pool, work);
}

void backward(const Network& n, const std::vector<const float*>& inputs, const float* last, const float* dy,
              const std::vector<float*>& to_weights, const std::vector<float*>& to_biases, float* to_input,
              const Pool& pool) {
  const Kernels kernels(n);
  const auto job = std::make_shared<Job>();
  Room& room = room_of_caller();
  const long rows = n.rows, layers = n.weights.size();
  if (n.relu_last) {
    const long count = rows * n.sizes[layers];
    float* masked = room.take(count);
    job->add(ROW_PARTS, [=, &kernels = kernels.exact](long part) {
      const long begin = share(count, part);
      kernels.masked(last + begin, dy + begin, masked + begin, share(count, part + 1) - begin);
    });
    dy = masked;
  }
  long work = 0;
  for (long l = layers - 1; l >= 0; l--) {
    const long I = n.sizes[l], O = n.sizes[l + 1];
    const bool weights = !to_weights.empty(), down = l > 0 || to_input;
    float* dx = l > 0 ? room.take(rows * I) : to_input;
    const RoundedProducts* rounded = kernels.of(O);
    const Products& products = rounded ? rounded->products : kernels.exact;
    ToWeight w{inputs[l], dy, weights ? to_weights[l] : nullptr, weights ? to_biases[l] : nullptr, rows, I, O, nullptr};
    ToInput d{dy, n.weights[l], l > 0 ? inputs[l] : nullptr, dx, rows, I, O, nullptr, nullptr};
    if (rounded) {
      std::uint32_t *x_pairs = room.take_pairs(half(rows) * I), *dy_pairs = room.take_pairs(rows * half(O)),
                    *weight_pairs = room.take_pairs(I * half(O));
      w.rounded_x = x_pairs, d.rounded_dy = dy_pairs, d.rounded_weight = weight_pairs;
      job->add(ROW_PARTS, [=](long part) {
        if (weights) rounded->across_rows(w.x, x_pairs, rows, I, share(half(rows), part), share(half(rows), part + 1));
        if (down) rounded->along_rows(d.dy, dy_pairs, O, share(rows, part), share(rows, part + 1));
        if (down) rounded->along_rows(d.weight, weight_pairs, O, share(I, part), share(I, part + 1));
      });
    }
    const long first = down ? products.panels(I) : 0, second = weights ? products.parts(O) : 0;
    job->add(first + second, [=, &products](long part) {
      if (part < first)
        products.to_input(d, part, panel(O * products.panel));
      else
        products.to_weight(w, part - first, panel(rows * products.panel));
    });
    work += 2 * rows * I * O * (down + weights);
    dy = dx;
  }
  job->run(pool, work);
}

}  // namespace tidelog
