// Networks against plain loops, in many shapes, on threads: `make check` runs this with sanitizers.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "network.h"

using namespace tidelog;
using Matrix = std::vector<float>;

namespace {

std::mt19937 generator(0);
std::atomic<long> helped{0};  // tasks that another thread has done

Matrix random(long count) {
  std::normal_distribution<float> normal;
  Matrix matrix(count);
  for (float& entry : matrix) entry = normal(generator);
  return matrix;
}

struct Threads {  // a pool whose threads come at once, and every other one late
  std::vector<std::thread> all;
  Pool pool{3, [this](std::function<void()> task) {
              auto begun = std::make_shared<std::atomic<bool>>(all.size() % 2 == 1);
              all.emplace_back([begun, task = std::move(task)] { *begun = true, task(), helped++; });
              while (!*begun) std::this_thread::yield();
            }};
  ~Threads() {
    for (std::thread& thread : all) thread.join();
  }
};

struct Problem {
  Network network;
  Matrix x, dy;
  std::vector<Matrix> weights, biases;
};

Problem problem(long rows, std::vector<long> sizes, bool relu_last) {
  Problem p{{rows, sizes, {}, {}, relu_last, false}, random(rows * sizes[0]), random(rows * sizes.back()), {}, {}};
  for (std::size_t l = 0; l + 1 < sizes.size(); l++) {
    p.weights.push_back(random(sizes[l] * sizes[l + 1]));
    for (float& entry : p.weights.back()) entry /= std::sqrt(1.0f + sizes[l]);
    p.biases.push_back(random(sizes[l + 1]));
  }
  for (std::size_t l = 0; l < p.weights.size(); l++) {
    p.network.weights.push_back(p.weights[l].data());
    p.network.biases.push_back(p.biases[l].data());
  }
  return p;
}

struct Answer {
  std::vector<Matrix> outputs, weights, biases;
  Matrix input;
};

template <class Visit>
void each(Answer& answer, Visit visit) {
  for (auto* group : {&answer.outputs, &answer.weights, &answer.biases})
    for (Matrix& matrix : *group) visit(matrix);
  visit(answer.input);
}

Answer empty(const Problem& p) {
  const long rows = p.network.rows;
  const auto& sizes = p.network.sizes;
  Answer answer;
  for (std::size_t l = 0; l + 1 < sizes.size(); l++) {
    answer.outputs.emplace_back(rows * sizes[l + 1], NAN);
    answer.weights.emplace_back(sizes[l] * sizes[l + 1], NAN);
    answer.biases.emplace_back(sizes[l + 1], NAN);
  }
  answer.input.assign(rows * sizes[0], NAN);
  return answer;
}

Answer native(Problem& p, Instructions instructions, bool rounded, bool keep) {
  Threads threads;
  p.network.instructions = instructions, p.network.rounded = rounded;
  Answer answer = empty(p);
  std::vector<float*> outputs, weights, biases;
  std::vector<const float*> inputs{p.x.data()};
  for (Matrix& matrix : answer.outputs) outputs.push_back(matrix.data());
  for (Matrix& matrix : answer.weights) weights.push_back(matrix.data());
  for (Matrix& matrix : answer.biases) biases.push_back(matrix.data());
  if (!keep) {  // the last outputs are the same where hidden ones are not kept
    std::vector<float*> last(outputs.size());
    last.back() = outputs.back();
    forward(p.network, p.x.data(), last, threads.pool);
    Matrix before = answer.outputs.back();
    forward(p.network, p.x.data(), outputs, threads.pool);
    if (!before.empty() && std::memcmp(before.data(), outputs.back(), before.size() * sizeof(float))) std::abort();
  } else {
    forward(p.network, p.x.data(), outputs, threads.pool);
  }
  for (std::size_t l = 0; l + 1 < outputs.size(); l++) inputs.push_back(outputs[l]);
  backward(p.network, inputs, outputs.back(), p.dy.data(), weights, biases, answer.input.data(), threads.pool);
  return answer;
}

float as_bfloat16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&x, &bits, 4);
  return x;
}

Answer plain(const Problem& p, bool rounded) {  // sums in doubles
  const Network& n = p.network;
  Answer answer = empty(p);
  const long layers = n.weights.size();
  const float* x = p.x.data();
  for (long l = 0; l < layers; l++) {
    const long I = n.sizes[l], O = n.sizes[l + 1];
    const auto factor = [&](double value) { return rounded && O > 1 ? as_bfloat16(value) : value; };
    for (long i = 0; i < n.rows; i++)
      for (long o = 0; o < O; o++) {
        double sum = n.biases[l][o];
        for (long k = 0; k < I; k++) sum += factor(x[i * I + k]) * factor(n.weights[l][k * O + o]);
        answer.outputs[l][i * O + o] = l + 1 < layers || n.relu_last ? std::max(0.0, sum) : sum;
      }
    x = answer.outputs[l].data();
  }
  std::vector<double> dy(p.dy.begin(), p.dy.end());
  for (long l = layers - 1; l >= 0; l--) {
    const long I = n.sizes[l], O = n.sizes[l + 1];
    const auto factor = [&](double value) { return rounded && O > 1 ? as_bfloat16(value) : value; };
    const float* in = l ? answer.outputs[l - 1].data() : p.x.data();
    if (l + 1 < layers || n.relu_last)
      for (long i = 0; i < n.rows * O; i++) dy[i] = answer.outputs[l][i] > 0 ? dy[i] : 0;
    for (long o = 0; o < O; o++) {
      double bias = 0;
      for (long i = 0; i < n.rows; i++) bias += dy[i * O + o];
      answer.biases[l][o] = bias;
      for (long k = 0; k < I; k++) {
        double sum = 0;
        for (long i = 0; i < n.rows; i++) sum += factor(in[i * I + k]) * factor(dy[i * O + o]);
        answer.weights[l][k * O + o] = sum;
      }
    }
    std::vector<double> dx(n.rows * I);
    for (long i = 0; i < n.rows; i++)
      for (long k = 0; k < I; k++)
        for (long o = 0; o < O; o++) dx[i * I + k] += factor(dy[i * O + o]) * factor(n.weights[l][k * O + o]);
    if (l == 0) answer.input.assign(dx.begin(), dx.end());
    dy = dx;
  }
  return answer;
}

// The largest difference of a matrix in the norm of that matrix.
double difference(Answer a, Answer b) {
  std::vector<const Matrix*> others;
  each(b, [&](Matrix& matrix) { others.push_back(&matrix); });
  double largest = 0;
  std::size_t at = 0;
  each(a, [&](Matrix& matrix) {
    double gap = 0, norm = 0;
    const Matrix& other = *others[at++];
    for (std::size_t i = 0; i < matrix.size(); i++)
      gap += std::pow(double(matrix[i]) - other[i], 2), norm += std::pow(other[i], 2);
    if (!matrix.empty()) largest = std::max(largest, std::isnan(gap) ? 1e9 : std::sqrt(gap / (norm + 1e-30)));
  });
  return largest;
}

bool same(Answer a, Answer b) {
  std::vector<const Matrix*> others;
  each(b, [&](Matrix& matrix) { others.push_back(&matrix); });
  bool equal = true;
  std::size_t at = 0;
  each(a, [&](Matrix& matrix) {
    const Matrix& other = *others[at++];
    equal = equal && (matrix.empty() || !std::memcmp(matrix.data(), other.data(), matrix.size() * sizeof(float)));
  });
  return equal;
}

int failures = 0;
void expect(bool holds, const std::string& what, const Problem& p) {
  if (holds) return;
  failures++;
  std::printf("FAILED %s: %ld rows, widths", what.c_str(), p.network.rows);
  for (long size : p.network.sizes) std::printf(" %ld", size);
  std::printf(", relu_last %d\n", p.network.relu_last);
}

}  // namespace

int main() {
  const Instructions best = of_this_processor();
  if (best == Instructions::none) {
    std::printf("this processor has no AVX2: nothing to check\n");
    return 0;
  }
  const bool wide = best == Instructions::avx512 || best == Instructions::avx512_bf16;
  std::vector<long> widths{0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70, 100, 130};
  std::uniform_int_distribution<std::size_t> any(0, widths.size() - 1), depth(1, 3), inner(1, widths.size() - 1);
  long shapes = 0;
  for (; shapes < 300; shapes++) {
    std::vector<long> sizes{widths[any(generator)]};
    for (std::size_t l = depth(generator); l > 0; l--) sizes.push_back(widths[inner(generator)]);
    Problem p = problem(widths[any(generator)], sizes, shapes % 2);
    const Answer expected = plain(p, false), narrow = native(p, Instructions::avx2, false, shapes % 3);
    expect(difference(narrow, expected) < 1e-5, "float32 with AVX2", p);
    expect(same(narrow, native(p, Instructions::avx2, false, true)), "the same bits again", p);
    if (wide) expect(same(narrow, native(p, Instructions::avx512, false, true)), "the same bits with AVX-512", p);
    if (best == Instructions::avx512_bf16) {
      const Answer rounded = native(p, best, true, shapes % 3);
      expect(difference(rounded, plain(p, true)) < 5e-3, "bfloat16", p);
      expect(same(rounded, native(p, best, true, true)), "the same bits of bfloat16 again", p);
    }
  }
  for (bool rounded : {false, true}) {  // NaN is not hidden by ReLU or by rounding
    if (rounded && best != Instructions::avx512_bf16) continue;
    Problem p = problem(40, {33, 64, 64, 20}, true);
    p.x[5] = NAN;
    const Answer answer = native(p, best, rounded, true);
    expect(std::isnan(answer.outputs[0][0]) && std::isnan(answer.outputs[2][19]), "NaN of the input in the outputs", p);
    expect(!std::isnan(answer.outputs[2][20]), "another row without NaN", p);
  }
  std::printf("%ld shapes, %ld tasks of other threads, %d failures\n", shapes, helped.load(), failures);
  return failures || !helped;
}
