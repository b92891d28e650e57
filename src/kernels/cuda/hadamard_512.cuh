// Hadamard transform of 512 numbers by one warp, on tensor cores. H_512 = H_32 (x) H_16: two matrix products with
// matrices of +1 and -1, together 12 instructions m16n8k16 and no exchange between lanes. Operands are bf16, sums fp32;
// numbers between the two products are rounded to bf16.
//
// Bit positions of an index can be permuted freely as long as input and output agree, because the transform is the same
// for each of them. So input and output have layouts in which every lane holds four pieces of four adjacent numbers.
// Two layouts A and B belong together: the transform of numbers in layout A is in layout B, and that of numbers in
// layout B, without moving any of them, in layout A. Number r of piece [i][j] of a lane is at base + i * 256 +
// j * stride + r.
#pragma once

#include "kernels/cuda/primitives.cuh"

namespace some::cuda {

inline constexpr int transform_size = 512;

// With LayoutA, 16 lanes read 128 adjacent bytes of bf16; with LayoutB, 8 lanes read 128 adjacent bytes of fp32, or of
// bf16 in two parts.
struct LayoutA {
  static constexpr int stride = 64;
  static __device__ __forceinline__ int base(int lane) {
    const int q = lane & 3, g = lane >> 2;
    return 4 * (q & 1) + 32 * (q >> 1) + 8 * (g & 3) + 128 * (g >> 2);
  }
};
struct LayoutB {
  static constexpr int stride = 128;
  static __device__ __forceinline__ int base(int lane) {
    const int q = lane & 3, g = lane >> 2;
    return 4 * (g & 1) + 8 * q + 32 * (g >> 1);
  }
};
// The same for fp32 in the first and bf16 in the second layout.
struct LayoutC {
  static constexpr int stride = 128;
  static __device__ __forceinline__ int base(int lane) { return 4 * lane; }
};
struct LayoutD {
  static constexpr int stride = 64;
  static __device__ __forceinline__ int base(int lane) {
    const int q = lane & 3, g = lane >> 2;
    return 4 * (g & 3) + 16 * q + 128 * (g >> 2);
  }
};

// Returns the position of the first number of piece [i][j].
template <typename Layout>
__device__ __forceinline__ int position(int base, int i, int j) {
  return base + 256 * i + Layout::stride * j;
}

// 16 numbers of a lane: in bf16, two per word, and in fp32.
struct Packed512 {
  std::uint32_t words[2][2][2];
};
struct Float512 {
  float values[2][2][4];
};

__device__ __forceinline__ Packed512 pack(const Float512& x) {
  Packed512 result;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int w = 0; w < 2; ++w) result.words[i][j][w] = pack(x.values[i][j][2 * w], x.values[i][j][2 * w + 1]);
    }
  }
  return result;
}

class Transform512 {
 public:
  explicit __device__ __forceinline__ Transform512(int lane) {
    const int q = lane & 3, g = lane >> 2;
    const bool first = ((g & q & 1) != 0) != ((g & q & 2) != 0);
    even_ = signed_ones(first, first);
    odd_ = signed_ones(first, !first);
    upper_ = (g & 4) != 0 ? negative : 0u;
    const bool second = ((q & 1) != 0 && (g & 4) != 0) != ((q & 2) != 0 && (g & 1) != 0);
    last_ = signed_ones(second, second != ((g & 2) != 0));
    // Keeps the values in registers; otherwise they would be recomputed in every loop.
    asm("" : "+r"(even_), "+r"(odd_), "+r"(upper_), "+r"(last_));
  }

  // Returns the unnormalized transform.
  __device__ __forceinline__ Float512 operator()(const Packed512& x) const {
    // H_32: its rows are in the lanes' groups (3 bits), in the halves of a fragment (the lowest bit of the position)
    // and in two fragments (the next bit).
    float partial[2][2][4] = {};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::uint32_t even = even_ ^ (j == 0 ? 0u : upper_), odd = odd_ ^ (j == 0 ? 0u : upper_);
      const std::uint32_t plus[4] = {even, odd, even, odd}, minus[4] = {even, odd, even ^ negative, odd ^ negative};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_add(partial[0][i], plus, x.words[i][j][0], x.words[i][j][1]);
        multiply_add(partial[1][i], minus, x.words[i][j][0], x.words[i][j][1]);
      }
    }
    // H_16, whose highest bit is i.
    Float512 result;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t rows[4] = {pack(partial[m][0][0], partial[m][0][1]), pack(partial[m][0][2], partial[m][0][3]),
                                     pack(partial[m][1][0], partial[m][1][1]),
                                     pack(partial[m][1][2], partial[m][1][3])};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sums[4] = {};
        multiply_add(sums, rows, last_, i == 0 ? last_ : last_ ^ negative);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          result.values[i][j][2 * m] = sums[j];
          result.values[i][j][2 * m + 1] = sums[2 + j];
        }
      }
    }
    return result;
  }

 private:
  static constexpr std::uint32_t negative = 0x80008000u;
  // Returns two numbers 1 or -1 in bf16.
  static __device__ __forceinline__ std::uint32_t signed_ones(bool low, bool high) {
    return 0x3f803f80u ^ (low ? 0x8000u : 0u) ^ (high ? 0x80000000u : 0u);
  }
  std::uint32_t even_, odd_, upper_, last_;
};

// Returns x with the signs of `masks` flipped.
__device__ __forceinline__ Packed512 flipped(const Packed512& x, const Packed512& masks) {
  Packed512 result;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int w = 0; w < 2; ++w) result.words[i][j][w] = x.words[i][j][w] ^ masks.words[i][j][w];
    }
  }
  return result;
}

// Random signs of 512 numbers, for one lane: bit r of a nibble is the sign of number r of a piece.
struct Signs512 {
  std::uint32_t nibbles[2][2];

  // bits: 16 words; position p is bit p % 32 of word p / 32. Higher bits of the nibbles are left as they are.
  template <typename Layout>
  static __device__ __forceinline__ Signs512 load(const std::uint32_t* bits, int base) {
    Signs512 signs;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) signs.nibbles[i][j] = bits[position<Layout>(base, i, j) / 32] >> (base % 32);
    }
    return signs;
  }
  // Returns words with only the signs set.
  __device__ __forceinline__ Packed512 masks() const {
    Packed512 result;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {  // products that move bits 0 and 1, or 2 and 3, to the signs of a word
        const std::uint32_t nibble = nibbles[i][j] & 15u;
        result.words[i][j][0] = nibble * 0x40008000u & 0x80008000u;
        result.words[i][j][1] = nibble * 0x10002000u & 0x80008000u;
      }
    }
    return result;
  }
  __device__ __forceinline__ Packed512 applied(const Packed512& x) const { return flipped(x, masks()); }
  __device__ __forceinline__ float applied(float value, int i, int j, int r) const {
    return __uint_as_float(__float_as_uint(value) ^ (nibbles[i][j] << (31 - r) & 0x80000000u));
  }
};

// Loads the numbers of a row of `length` numbers from `start` on that are in the lane's layout; those beyond it are 0.
// length is a multiple of 4, and the row aligned to 8 bytes. FULL: none is beyond it.
template <typename Layout, bool FULL>
__device__ __forceinline__ Packed512 load_512(const bf16* row, int start, int length, int base) {
  const bf16* const first = row + start + base;
  Packed512 result;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint2 piece = make_uint2(0, 0);
      if (FULL || start + position<Layout>(base, i, j) < length)
        piece = *reinterpret_cast<const uint2*>(first + position<Layout>(0, i, j));
      result.words[i][j][0] = piece.x;
      result.words[i][j][1] = piece.y;
    }
  }
  return result;
}
// The same in fp32; the row is aligned to 16 bytes.
template <typename Layout, bool FULL>
__device__ __forceinline__ Float512 load_512(const float* row, int start, int length, int base) {
  const float* const first = row + start + base;
  Float512 result = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (FULL || start + position<Layout>(base, i, j) < length)
        load_elements<4>(first + position<Layout>(0, i, j), result.values[i][j]);
    }
  }
  return result;
}

// Returns number r of piece [i][j].
__device__ __forceinline__ float number(const Packed512& x, int i, int j, int r) {
  const std::uint32_t word = x.words[i][j][r / 2];
  return r % 2 == 0 ? low_half(word) : high_half(word);
}
__device__ __forceinline__ Float512 unpack(const Packed512& x) {
  Float512 result;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int r = 0; r < 4; ++r) result.values[i][j][r] = number(x, i, j, r);
    }
  }
  return result;
}

// Returns the products of pairs of bf16, rounded.
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
  return reinterpret_cast<const std::uint32_t&>(product);
}

}  // namespace some::cuda
