// Peak rates of the CPU that runs this, measured: multiply-adds that depend on nothing but their own accumulator, and a
// sum over memory that does nothing but read. Built for this machine only (-march of the host), called through ctypes.
#include <immintrin.h>
#include <stdint.h>
#include <time.h>

#include <atomic>
#include <thread>
#include <vector>

namespace {

// Processor time of the calling thread, which equals wall time unless others want the processor too.
double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs body(thread) on all threads at once; returns the time of the slowest.
template <class Body>
double on_threads(int threads, const Body& body) {
  std::atomic<int> ready{0};
  std::vector<double> times(threads);
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      ready.fetch_add(1);
      while (ready.load() < threads) {
      }
      const double start = thread_seconds();
      body(t);
      times[t] = thread_seconds() - start;
    });
  }
  for (auto& thread : pool) thread.join();
  double worst = 0;
  for (double time : times) worst = time > worst ? time : worst;
  return worst;
}

constexpr int kChains = 24;

#if defined(__AVX512F__)
using Register = __m512;
constexpr int kLanes = 16;
inline Register set1(float x) { return _mm512_set1_ps(x); }
inline Register multiply_add(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
inline float first(Register x) { return _mm512_cvtss_f32(x); }
#elif defined(__AVX2__)
using Register = __m256;
constexpr int kLanes = 8;
inline Register set1(float x) { return _mm256_set1_ps(x); }
inline Register multiply_add(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
inline float first(Register x) { return _mm256_cvtss_f32(x); }
#else
#error "the probes are written for x86-64 with AVX2 or AVX-512"
#endif

volatile float sink;

}  // namespace

extern "C" {

// Floating-point operations a second of float32 fused multiply-adds.
double peak_float32(int threads, int64_t rounds) {
  const double time = on_threads(threads, [&](int) {
    Register sums[kChains];
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = set1(static_cast<float>(i));
    const Register a = set1(0.999f);
    const Register b = set1(0.001f);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i) {
        sums[i] = multiply_add(sums[i], a, b);
        asm volatile("" : "+v"(sums[i]));
      }
    }
    float total = 0;
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) total += first(sums[i]);
    sink = total;
  });
  return 2.0 * kLanes * kChains * static_cast<double>(rounds) * threads / time;
}

// The same of bfloat16 pair products; 0 where the CPU has none.
double peak_bfloat16(int threads, int64_t rounds) {
#if defined(__AVX512BF16__)
  const double time = on_threads(threads, [&](int) {
    __m512 sums[kChains];
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
    const __m512bh a = (__m512bh)_mm512_set1_epi16(0x3c00);
    const __m512bh b = (__m512bh)_mm512_set1_epi16(0x3a00);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 24
      for (int i = 0; i < kChains; ++i) {
        sums[i] = _mm512_dpbf16_ps(sums[i], a, b);
        asm volatile("" : "+v"(sums[i]));
      }
    }
    float total = 0;
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) total += _mm512_cvtss_f32(sums[i]);
    sink = total;
  });
  return 4.0 * 16 * kChains * static_cast<double>(rounds) * threads / time;
#else
  (void)threads;
  (void)rounds;
  return 0;
#endif
}

// Bytes a second of reading `bytes` bytes once.
double read_bandwidth(int threads, const float* memory, int64_t bytes) {
  const int64_t floats = bytes / 4 / threads / (8 * kLanes) * (8 * kLanes);
  const double time = on_threads(threads, [&](int thread) {
    const float* p = memory + thread * floats;
    Register sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = set1(0);
    for (int64_t n = 0; n < floats; n += 8 * kLanes) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[i] += *reinterpret_cast<const Register*>(p + n + i * kLanes);
    }
    for (int i = 1; i < 8; ++i) sums[0] += sums[i];
    sink = first(sums[0]);
  });
  return 4.0 * static_cast<double>(floats) * threads / time;
}
}
