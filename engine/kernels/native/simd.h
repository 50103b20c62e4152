// Sixteen lanes of work, written once for every instruction set.
//
// The whole library is compiled once per instruction set (see build.py); GCC's vector extensions lower the plain
// arithmetic, and this header holds the few operations for which an instruction set has something better.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PW_INLINE inline __attribute__((always_inline))

namespace pagewire {

typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t bf16;
typedef uint16_t bf16x16 __attribute__((vector_size(32)));
typedef int8_t int8x16 __attribute__((vector_size(16)));
typedef int8_t int8x32 __attribute__((vector_size(32)));
typedef int16_t int16x16 __attribute__((vector_size(32)));
typedef int16_t int16x32 __attribute__((vector_size(64)));

constexpr int kLanes = 16;

// Rows of a register tile: as many as the registers hold with two vectors of columns each.
#if defined(__AVX512F__)
constexpr int kTileRows = 12;
constexpr int kTileRowsInt8 = 7;
#else
constexpr int kTileRows = 3;
constexpr int kTileRowsInt8 = 2;
#endif

// A vector from unaligned memory of any type.
template <class Vector, class Element>
PW_INLINE Vector load_as(const Element* from) {
    typedef Vector Unaligned __attribute__((aligned(1), may_alias));
    return *(const Unaligned*)from;
}
PW_INLINE f32x16 load(const float* from) { return load_as<f32x16>(from); }
PW_INLINE void store(float* to, f32x16 value) { memcpy(to, &value, sizeof value); }
PW_INLINE f32x16 splat(float value) { return value - f32x16{}; }

// Four bytes (two bf16 or four int8) repeated in every lane.
PW_INLINE i32x16 splat_word(const void* from) {
    int32_t word;
    memcpy(&word, from, sizeof word);
#if defined(__AVX512F__)
    return (i32x16)_mm512_set1_epi32(word);
#else
    return word - i32x16{};
#endif
}

PW_INLINE float to_float(bf16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
PW_INLINE bf16 to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

PW_INLINE bf16x16 to_bf16(f32x16 value) {
#if defined(__AVX512BF16__)
    return (bf16x16)_mm512_cvtneps_pbh((__m512)value);
#else
    u32x16 bits = (u32x16)value;
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return __builtin_convertvector(bits, bf16x16);
#endif
}
PW_INLINE void store_bf16(bf16* to, f32x16 value) {
    bf16x16 rounded = to_bf16(value);
    memcpy(to, &rounded, sizeof rounded);
}
PW_INLINE f32x16 load_bf16(const bf16* from) {
    const bf16x16 values = load_as<bf16x16>(from);
#if defined(__AVX512F__)
    const u32x16 wide = (u32x16)_mm512_cvtepu16_epi32((__m256i)values);
#else
    const u32x16 wide = __builtin_convertvector(values, u32x16);
#endif
    return (f32x16)(wide << 16);
}

// GCC 12 converts between bytes and wider lanes one by one unless told how.
PW_INLINE f32x16 load_int8(const int8_t* from) {
    const int8x16 values = load_as<int8x16>(from);
#if defined(__AVX512F__)
    const i32x16 wide = (i32x16)_mm512_cvtepi8_epi32((__m128i)values);
#else
    const i32x16 wide = __builtin_convertvector(values, i32x16);
#endif
    return __builtin_convertvector(wide, f32x16);
}
// The low byte of each lane.
PW_INLINE void store_int8(int8_t* to, i32x16 value) {
#if defined(__AVX512F__)
    const int8x16 narrow = (int8x16)_mm512_cvtepi32_epi8((__m512i)value);
#else
    const int8x16 narrow = __builtin_convertvector(value, int8x16);
#endif
    memcpy(to, &narrow, sizeof narrow);
}

// 32 bf16 from two halves.
PW_INLINE i32x16 to_bf16_pairs(f32x16 low, f32x16 high) {
#if defined(__AVX512BF16__)
    return (i32x16)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
#else
    const bf16x16 halves[2] = {to_bf16(low), to_bf16(high)};
    return load_as<i32x16>(halves);
#endif
}

// acc[i] += a[2i] * b[2i] + a[2i + 1] * b[2i + 1], bf16 pairs.
PW_INLINE f32x16 dot_bf16(f32x16 acc, i32x16 a, i32x16 b) {
#if defined(__AVX512BF16__)
    return (f32x16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)a, (__m512bh)b);
#else
    const int32_t high = (int32_t)0xffff0000;
    acc += (f32x16)(a & high) * (f32x16)(b & high);
    return acc + (f32x16)(a << 16) * (f32x16)(b << 16);
#endif
}

// acc[i] += sum over four bytes of unsigned u times signed s.
PW_INLINE i32x16 dot_int8(i32x16 acc, i32x16 u, i32x16 s) {
#if defined(__AVX512VNNI__)
    // Not the intrinsic: with it GCC 12 keeps `u` on the stack although registers are free.
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
    return acc;
#else
    acc += (i32x16)((u32x16)u << 24 >> 24) * (s << 24 >> 24);
    acc += (i32x16)((u32x16)u << 16 >> 24) * (s << 16 >> 24);
    acc += (i32x16)((u32x16)u << 8 >> 24) * (s << 8 >> 24);
    return acc + (i32x16)((u32x16)u >> 24) * (s >> 24);
#endif
}

// acc[i] += a[2i] * b[2i] + a[2i + 1] * b[2i + 1], pairs of int16.
PW_INLINE i32x16 dot_int16(i32x16 acc, i32x16 a, i32x16 b) {
#if defined(__AVX512VNNI__)
    asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
#else
    return acc + (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}
// 32 int8 as as many int16.
PW_INLINE i32x16 widen_int8(const void* from) {
    const int8x32 values = load_as<int8x32>((const int8_t*)from);
#if defined(__AVX512BW__)
    return (i32x16)_mm512_cvtepi8_epi16((__m256i)values);
#else
    return (i32x16)__builtin_convertvector(values, int16x32);
#endif
}
// Rounds to int16; lanes must be within its range.
PW_INLINE void store_int16(int16_t* to, f32x16 value) {
    const i32x16 rounded = (i32x16)(value + splat(12582912.0f)) - (i32x16)splat(12582912.0f);
#if defined(__AVX512F__)
    const int16x16 narrow = (int16x16)_mm512_cvtepi32_epi16((__m512i)rounded);
#else
    const int16x16 narrow = __builtin_convertvector(rounded, int16x16);
#endif
    memcpy(to, &narrow, sizeof narrow);
}

PW_INLINE f32x16 maximum(f32x16 a, f32x16 b) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return a > b ? a : b;
#endif
}
PW_INLINE float reduce_max(f32x16 value) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)value);
#else
    float result = value[0];
    for (int i = 1; i < kLanes; i++) result = value[i] > result ? value[i] : result;
    return result;
#endif
}
PW_INLINE float reduce_add(f32x16 value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)value);
#else
    float result = 0;
    for (int i = 0; i < kLanes; i++) result += value[i];
    return result;
#endif
}
PW_INLINE int32_t reduce_add(i32x16 value) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_epi32((__m512i)value);
#else
    int32_t result = 0;
    for (int i = 0; i < kLanes; i++) result += value[i];
    return result;
#endif
}

struct Rounded {
    float scale;
    int32_t sum;  // of the integers
};
// Rounds values [n] (a multiple of 16) to int8 with one scale; writes the integers plus `shift`.
inline Rounded round_to_int8(const float* values, int n, int shift, int8_t* to) {
    f32x16 largest{};
    for (int i = 0; i < n; i += kLanes) largest = maximum(largest, maximum(load(values + i), -load(values + i)));
    const float most = reduce_max(largest);
    const f32x16 inverse = splat(most > 0 ? 127.0f / most : 0.0f), shifter = splat(12582912.0f);
    i32x16 sum{};
    for (int i = 0; i < n; i += kLanes) {
        const i32x16 rounded = (i32x16)(load(values + i) * inverse + shifter) - (i32x16)shifter;
        sum += rounded;
        store_int8(to + i, rounded + shift);
    }
    return {most / 127.0f, reduce_add(sum)};
}

PW_INLINE f32x16 round_to_integer(f32x16 x) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const f32x16 shifter = splat(12582912.0f);  // 1.5 * 2**23: adding it rounds to an integer
    return (x + shifter) - shifter;
#endif
}
// x * 2 ** exponent, for a whole exponent.
PW_INLINE f32x16 scale_by_power(f32x16 x, f32x16 exponent) {
#if defined(__AVX512F__)
    return (f32x16)_mm512_scalef_ps((__m512)x, (__m512)exponent);
#else
    exponent = maximum(splat(-126.0f), exponent);  // in this order NaN stays NaN
    return x * (f32x16)((__builtin_convertvector(exponent, i32x16) + 127) << 23);
#endif
}

// 2 ** x for -1e30 <= x < 127; relative error under 3e-6.
PW_INLINE f32x16 exp2(f32x16 x) {
    const f32x16 whole = round_to_integer(x), f = x - whole;
    f32x16 p = splat(9.5700829e-3f) * f + splat(5.5917868e-2f);
    p = p * f + splat(0.24024745f);
    p = p * f + splat(0.69312181f);
    p = p * f + splat(0.99999926f);
    return scale_by_power(p, whole);
}
// The same with a relative error under 8e-5: for results that bf16 rounds to 2e-3.
PW_INLINE f32x16 exp2_coarse(f32x16 x) {
    const f32x16 whole = round_to_integer(x), f = x - whole;
    f32x16 p = splat(5.5171505e-2f) * f + splat(0.24261118f);
    p = p * f + splat(0.69326102f);
    p = p * f + splat(0.99992807f);
    return scale_by_power(p, whole);
}

PW_INLINE f32x16 silu(f32x16 x) {
    const f32x16 limit = splat(80.0f);
    f32x16 bounded = maximum(-limit, x);
    bounded = -maximum(-limit, -bounded);
    // exp2 takes arguments of either sign here: up to 80 * log2(e) = 115, inside the exponent's range.
    return x / (splat(1.0f) + exp2(bounded * -1.44269504f));
}

PW_INLINE void prefetch(const void* at) { __builtin_prefetch(at, 0, 3); }
PW_INLINE void prefetch_to_write(const void* at) { __builtin_prefetch(at, 1, 3); }

PW_INLINE void prefetch_l2(const void* at) { __builtin_prefetch(at, 0, 2); }

PW_INLINE void relax() {
#if defined(__x86_64__)
    _mm_pause();
#endif
}

}  // namespace pagewire
