#include "kernels/engines/unpacked_product.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "jit/isa.h"
#include "kernels/codegen/dispatch.h"
#include "kernels/runtime/caches.h"

namespace intact::kernels {
namespace {

constexpr int64_t kColumns = UnpackedProduct::kColumns;
constexpr int64_t kDepths = UnpackedProduct::kDepths;
constexpr int64_t kBlockDepths = 16;     // the most depths of a block of rows of B
constexpr int64_t kFewDepths = 8;        // depths of a block whose rows share a set of L1
constexpr int64_t kL1WayBytes = 4096;    // rows at a multiple of this distance share sets of L1
constexpr int64_t kMostReadingRows = 4;  // rows of A that read a block of such rows without a copy
constexpr int64_t kColumnsAhead = 512;   // columns to the block that is prefetched
// One row of A takes less time for a block of kFewDepths depths. Measured on Zen 5 with AVX2: 1.2 times as fast at
// 1×4096×11008 as with 512.
constexpr int64_t kColumnsAheadOfOneRow = 1024;
// AVX2 takes longer for a column. Measured on Zen 5: 1.2 times as fast at 1×4032×4096 as with 512.
constexpr int64_t kColumnsAheadByAvx2 = 256;
constexpr int64_t kAtOnce = 4;  // columns of B that are read together

int DwordAt(const uint8_t* from) {
  int dword = 0;
  std::memcpy(&dword, from, sizeof(dword));
  return dword;
}

// A block of kBlockDepths or kFewDepths rows of kColumns weights, `stride` bytes apart.
struct Block {
  const int8_t* b;
  int64_t stride;
  uint8_t shift;
};

// Adds the products of a block to kColumns sums of each row. `staged` is at the block's first depth.
using AddBlock = void (*)(const Block& block, const uint8_t* staged, int64_t staged_stride, int64_t rows,
                          int32_t* sums, int64_t sums_stride);

// Blocks are read line after line of columns: at the end of a line, the next rows follow.
template <int64_t kBlock>
struct Line {
  int64_t begin, width;               // columns; `width` with padding
  int64_t rows_ahead, columns_ahead;  // from a block to the block that is read `ahead` columns later

  Line(int64_t first, int64_t columns, int64_t ahead)
      : begin(first),
        width(RoundUp(columns, kColumns)),
        rows_ahead(ahead / width * kBlock),
        columns_ahead(ahead % width) {}
};

// Prefetches the block that is read some columns after the block at `depth` and `column`. A block has
// 8 or 16 rows, and hardware prefetchers follow fewer streams. Inlined, because GCC takes out calls that only
// prefetch.
template <int64_t kBlock>
[[gnu::always_inline]] inline void PrefetchAhead(const WeightView& b, const Line<kBlock>& line, int64_t depth,
                                                 int64_t column) {
  depth += line.rows_ahead;
  column += line.columns_ahead;
  if (column >= line.begin + line.width) {
    column -= line.width;
    depth += kBlock;
  }
  if (depth + kBlock > b.k) return;
  for (int64_t i = depth; i < depth + kBlock; ++i) {
    _mm_prefetch(b.data + i * b.stride_k + column, _MM_HINT_T0);
  }
}

// Whether the rows of B share a set of L1.
bool SharesSet(const WeightView& b) { return b.stride_k % kL1WayBytes == 0; }

// Whether `columns` columns of B come from beyond L2.
bool IsFar(const WeightView& b, int64_t columns) { return b.k * columns > Caches().StreamedWeights(); }

// Copies `depths` rows of `columns` weights to a block, and pads them with zeros.
void CopyBlock(const WeightView& b, const int8_t* from, int64_t depths, int64_t columns, int8_t* block) {
  if (columns < kColumns || depths < kBlockDepths) std::fill_n(block, kBlockDepths * kColumns, int8_t{0});
  for (int64_t i = 0; i < depths; ++i, from += b.stride_k, block += kColumns) {
    if (columns == kColumns) {
      std::memcpy(block, from, size_t{kColumns});
    } else {
      std::memcpy(block, from, static_cast<size_t>(columns));
    }
  }
}

// By blocks of kBlock depths, which `kAdd` adds. L1 has fewer ways than a block of kBlockDepths rows, so if these
// rows share a set, a block for many rows of A is copied.
template <AddBlock kAdd, int64_t kDepthBytes, int64_t kBlock = kBlockDepths, int64_t kAhead = kColumnsAhead>
void AddRows(const WeightView& b, int64_t begin, int64_t end, const uint8_t* staged, int64_t rows,
             int32_t* sums, int64_t sums_stride) noexcept {
  const int64_t staged_stride = RoundUp(b.k, kDepths) * kDepthBytes;
  const bool is_far = IsFar(b, end - begin);
  const bool copies = SharesSet(b) && rows > kMostReadingRows;
  const int64_t sums_bytes = rows * int64_t{sizeof(int32_t)};  // of a column
  const int64_t line_columns = std::max(kColumns, Caches().UnpackedSums() / sums_bytes / kColumns * kColumns);
  for (int64_t line = begin; line < end; line += line_columns) {
    const int64_t line_end = std::min(end, line + line_columns);
    const Line<kBlock> ahead(line, line_end - line, kAhead);
    for (int64_t depth = 0; depth < b.k; depth += kBlock) {
      const int64_t depths = std::min(kBlock, b.k - depth);
      for (int64_t column = line; column < line_end; column += kColumns) {
        const int64_t columns = std::min(kColumns, line_end - column);
        const int8_t* const from = b.data + depth * b.stride_k + column;
        alignas(64) std::array<int8_t, kBlockDepths * kColumns> edge;
        Block block = {from, b.stride_k, b.shift};
        // Beyond its last column, a row of a dense B may be read, because the next row follows.
        const int64_t last = (depth + kBlock - 1) * b.stride_k + column;
        const bool is_whole = columns == kColumns || (b.stride_k == b.n && last + kColumns <= b.k * b.n);
        if (depths < kBlock || !is_whole || copies) {
          CopyBlock(b, from, depths, columns, edge.data());
          block = {edge.data(), kColumns, b.shift};
        }
        if (is_far) PrefetchAhead(b, ahead, depth, column);
        kAdd(block, staged + depth * kDepthBytes, staged_stride, rows, sums + column - begin, sums_stride);
      }
    }
  }
}

// AddRows() by blocks of kFewDepths depths, which `kAddFew` adds, or of kBlockDepths depths, which `kAdd` adds. Blocks of
// fewer rows, which are prefetched, stay in L1 until up to `kMostFewRows` rows of A have read them.
template <AddBlock kAddFew, AddBlock kAdd, int64_t kDepthBytes, int64_t kMostFewRows,
          int64_t kAhead = kColumnsAhead>
void AddRowsInBlocks(const WeightView& b, int64_t begin, int64_t end, const uint8_t* staged, int64_t rows,
                     int32_t* sums, int64_t sums_stride) noexcept {
  auto add = AddRows<kAdd, kDepthBytes, kBlockDepths, kAhead>;
  if (SharesSet(b) && rows <= kMostFewRows && IsFar(b, end - begin)) {
    add = rows == 1 ? AddRows<kAddFew, kDepthBytes, kFewDepths, kColumnsAheadOfOneRow>
                    : AddRows<kAddFew, kDepthBytes, kFewDepths>;
  }
  add(b, begin, end, staged, rows, sums, sums_stride);
}

// Columns of B: whole kDepths depths in place, and a copy of the depths after them, padded with zeros.
struct Columns {
  std::array<const int8_t*, kAtOnce> whole, tail;
  int64_t whole_depths = 0, depths = 0;  // of a column; `depths` with padding
  int64_t ahead = 0;                     // bytes to the weights that are read next
  uint8_t shift = 0;

  /// Where kDepths depths from `depth` on of a column are.
  const int8_t* At(size_t column, int64_t depth) const {
    return depth < whole_depths ? whole[column] + depth : tail[column];
  }
};

// Adds the products of kAtOnce columns to kAtOnce sums of a row.
using AddColumns4 = void (*)(const Columns& columns, const uint8_t* staged, int32_t* sums);

template <AddColumns4 kAdd, int64_t kDepthBytes>
void AddColumns(const WeightView& b, int64_t begin, int64_t end, const uint8_t* staged, int64_t rows,
                int32_t* sums, int64_t sums_stride) noexcept {
  const int64_t staged_stride = RoundUp(b.k, kDepths) * kDepthBytes;
  alignas(64) std::array<int8_t, kAtOnce* kDepths> tails = {};
  Columns columns;
  columns.depths = RoundUp(b.k, kDepths);
  columns.whole_depths = b.k / kDepths * kDepths;
  columns.shift = b.shift;
  for (int64_t column = begin; column < end; column += kAtOnce) {
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const auto place = static_cast<size_t>(i);
      const int8_t* const from = b.data + std::min(column + i, end - 1) * b.stride_n;
      int8_t* const tail = tails.data() + i * kDepths;
      if (columns.whole_depths != b.k) {
        std::memcpy(tail, from + columns.whole_depths, static_cast<size_t>(b.k - columns.whole_depths));
      }
      columns.whole[place] = from;
      columns.tail[place] = tail;
    }
    columns.ahead = kAtOnce * b.stride_n;
    for (int64_t row = 0; row < rows; ++row) {
      kAdd(columns, staged + row * staged_stride, sums + row * sums_stride + column - begin);
      columns.ahead = 0;
    }
  }
}

// ----- AVX2 ------------------------------------------------------------------------------------------------

[[gnu::target("avx2")]] inline __m256i Load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
[[gnu::target("avx2")]] inline void Add(int32_t* sums, __m256i addend) {
  auto* const to = reinterpret_cast<__m256i*>(sums);
  _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), addend));
}

// Adds the sums of columns 0 to 3 and 16 to 19, 4 to 7 and 20 to 23, …
[[gnu::target("avx2")]] inline void AddFours(const __m256i* fours, int32_t* sums) {
  Add(sums, _mm256_permute2x128_si256(fours[0], fours[1], 0x20));
  Add(sums + 8, _mm256_permute2x128_si256(fours[2], fours[3], 0x20));
  Add(sums + 16, _mm256_permute2x128_si256(fours[0], fours[1], 0x31));
  Add(sums + 24, _mm256_permute2x128_si256(fours[2], fours[3], 0x31));
}

// a0 a1 | a2 a3 | … → l0 l1 l0 l1 | h0 h1 h0 h1 | …, with a = 16·h + l: two dwords for each pair of depths.
[[gnu::target("avx2")]] void StagePairs(const uint8_t* a, int64_t k, uint8_t* staged) noexcept {
  const __m128i low = _mm_set1_epi8(0x0f);
  for (int64_t depth = 0; depth < k; depth += 16, staged += 64) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + depth));
    const __m128i halves[] = {_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low)};
    const __m128i l[] = {_mm_unpacklo_epi16(halves[0], halves[0]), _mm_unpackhi_epi16(halves[0], halves[0])};
    const __m128i h[] = {_mm_unpacklo_epi16(halves[1], halves[1]), _mm_unpackhi_epi16(halves[1], halves[1])};
    auto* const to = reinterpret_cast<__m128i*>(staged);
    for (int i = 0; i < 2; ++i) {
      _mm_storeu_si128(to + 2 * i, _mm_unpacklo_epi32(l[i], h[i]));
      _mm_storeu_si128(to + 2 * i + 1, _mm_unpackhi_epi32(l[i], h[i]));
    }
  }
}

// Sums of products with the halves of activations, of 32 columns.
struct PairSums {
  __m256i l_low, l_high, h_low, h_high;
};

// Adds int16. GCC would compute all products of a block first, keep them and sums on the stack, or copy sums.
[[gnu::target("avx2")]] inline void Accumulate(__m256i products, __m256i* sum) {
  asm("vpaddw %1, %0, %0" : "+x"(*sum) : "x"(products));
}

[[gnu::target("avx2")]] inline void AddPair(__m256i l, __m256i h, __m256i even, __m256i odd, PairSums* sums) {
  const __m256i low = _mm256_unpacklo_epi8(even, odd);
  const __m256i high = _mm256_unpackhi_epi8(even, odd);
  Accumulate(_mm256_maddubs_epi16(l, low), &sums->l_low);
  Accumulate(_mm256_maddubs_epi16(l, high), &sums->l_high);
  Accumulate(_mm256_maddubs_epi16(h, low), &sums->h_low);
  Accumulate(_mm256_maddubs_epi16(h, high), &sums->h_high);
}

[[gnu::target("avx2")]] inline void AddWidened(const PairSums& pairs, int32_t* sums) {
  const __m256i factors = _mm256_set1_epi32(16 << 16 | 1);  // l + 16·h
  const auto widen = [&](__m256i halves) __attribute__((target("avx2"))) {
    return _mm256_madd_epi16(halves, factors);
  };
  const __m256i fours[] = {widen(_mm256_unpacklo_epi16(pairs.l_low, pairs.h_low)),
                           widen(_mm256_unpackhi_epi16(pairs.l_low, pairs.h_low)),
                           widen(_mm256_unpacklo_epi16(pairs.l_high, pairs.h_high)),
                           widen(_mm256_unpackhi_epi16(pairs.l_high, pairs.h_high))};
  AddFours(fours, sums);
}

// A block's products for one row. A line of B is read as a whole: if rows of B lie a multiple of 4 KiB apart,
// L1 may not hold the lines of a block.
template <int64_t kBlock, bool kShifts>
[[gnu::target("avx2")]] inline void AddPairs(const Block& block, const uint8_t* staged, int32_t* sums) {
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(block.shift));
  // The int16 sums of all pairs are exact: 8 · 2 · 15 · 128 < 2¹⁵.
  PairSums first = {}, second = {};
  const int8_t* b = block.b;
  const int64_t stride = block.stride;
#pragma GCC unroll 1
  for (int pair = 0; pair < kBlock / 2; ++pair, b += 2 * stride) {
    const __m256i l = _mm256_set1_epi32(DwordAt(staged + pair * 8));
    const __m256i h = _mm256_set1_epi32(DwordAt(staged + pair * 8 + 4));
    const auto weights = [&](int64_t at) __attribute__((target("avx2"))) {
      __m256i row = Load(b + at);
      if (kShifts) row = _mm256_xor_si256(row, shift);
      asm("" : "+x"(row));  // GCC would load it twice
      return row;
    };
    AddPair(l, h, weights(0), weights(stride), &first);
    AddPair(l, h, weights(kColumns / 2), weights(stride + kColumns / 2), &second);
  }
  AddWidened(first, sums);
  AddWidened(second, sums + kColumns / 2);
}

template <int64_t kBlock>
[[gnu::target("avx2")]] void AddBlockByAvx2(const Block& block, const uint8_t* staged, int64_t staged_stride,
                                            int64_t rows, int32_t* sums, int64_t sums_stride) {
  const auto add = block.shift == 0 ? AddPairs<kBlock, false> : AddPairs<kBlock, true>;
  for (int64_t row = 0; row < rows; ++row) add(block, staged + row * staged_stride, sums + row * sums_stride);
}

// The low halves of 64 depths, then their high halves.
[[gnu::target("avx2")]] void StageHalves(const uint8_t* a, int64_t k, uint8_t* staged) noexcept {
  const __m256i low = _mm256_set1_epi8(0x0f);
  for (int64_t depth = 0; depth < k; depth += kDepths, staged += 2 * kDepths) {
    for (int64_t i = 0; i < kDepths; i += 32) {
      const __m256i bytes = Load(a + depth + i);
      auto* const to = reinterpret_cast<__m256i*>(staged + i);
      _mm256_storeu_si256(to, _mm256_and_si256(bytes, low));
      _mm256_storeu_si256(to + 2, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low));
    }
  }
}

// Adds the sum of the lanes of each vector to `sums`.
[[gnu::target("avx2")]] inline void AddTotals(const __m256i* total, int32_t* sums) {
  const __m256i four =
      _mm256_hadd_epi32(_mm256_hadd_epi32(total[0], total[1]), _mm256_hadd_epi32(total[2], total[3]));
  auto* const to = reinterpret_cast<__m128i*>(sums);
  const __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
  _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), sum));
}

[[gnu::target("avx2")]] void AddColumnsByAvx2(const Columns& columns, const uint8_t* staged, int32_t* sums) {
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(columns.shift));
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i sixteens = _mm256_set1_epi16(16);
  __m256i total[kAtOnce] = {};
  for (int64_t depth = 0; depth < columns.depths;) {
    // int16 sums hold 4 · 2 products of pairs.
    const int64_t end = std::min(columns.depths, depth + 4 * kDepths);
    __m256i l[kAtOnce] = {};
    __m256i h[kAtOnce] = {};
    for (; depth < end; depth += kDepths) {
      const uint8_t* const a = staged + depth * 2;
#pragma GCC unroll 2
      for (int64_t i = 0; i < kDepths; i += 32) {
        const __m256i a_low = Load(a + i);
        const __m256i a_high = Load(a + kDepths + i);
#pragma GCC unroll 4
        for (size_t column = 0; column < kAtOnce; ++column) {
          const __m256i b = _mm256_xor_si256(Load(columns.At(column, depth) + i), shift);
          l[column] = _mm256_add_epi16(l[column], _mm256_maddubs_epi16(a_low, b));
          h[column] = _mm256_add_epi16(h[column], _mm256_maddubs_epi16(a_high, b));
        }
      }
      if (columns.ahead != 0) {
#pragma GCC unroll 4
        for (size_t column = 0; column < kAtOnce; ++column) {
          _mm_prefetch(columns.whole[column] + depth + columns.ahead, _MM_HINT_T0);
        }
      }
    }
#pragma GCC unroll 4
    for (size_t column = 0; column < kAtOnce; ++column) {
      const __m256i widened =
          _mm256_add_epi32(_mm256_madd_epi16(l[column], ones), _mm256_madd_epi16(h[column], sixteens));
      total[column] = _mm256_add_epi32(total[column], widened);
    }
  }
  AddTotals(total, sums);
}

// ----- AVX-VNNI --------------------------------------------------------------------------------------------

#define INTACT_AVX_VNNI gnu::target("avx2,avxvnni")

void StageBytes(const uint8_t* a, int64_t k, uint8_t* staged) noexcept {
  std::memcpy(staged, a, static_cast<size_t>(k));
}

// The products of kHalves halves of a block's columns for kRows rows, with quads of four columns of each
// 128-bit lane in a vector.
template <int kRows, int kHalves>
[[INTACT_AVX_VNNI]] inline void AddHalves(const int8_t* b, int64_t stride, __m256i shift,
                                          const uint8_t* staged, int64_t staged_stride, int32_t* sums,
                                          int64_t sums_stride) {
  constexpr int64_t kHalf = kColumns / 2;
  __m256i sum[kRows][kHalves][4] = {};
  for (int64_t depth = 0; depth < kBlockDepths; depth += kQuad, b += kQuad * stride) {
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
      const auto row = [&](int64_t i) __attribute__((target("avx2,avxvnni"))) {
        return _mm256_xor_si256(Load(b + i * stride + half * kHalf), shift);
      };
      const __m256i row0 = row(0), row1 = row(1), row2 = row(2), row3 = row(3);
      const __m256i low01 = _mm256_unpacklo_epi8(row0, row1), low23 = _mm256_unpacklo_epi8(row2, row3);
      const __m256i high01 = _mm256_unpackhi_epi8(row0, row1), high23 = _mm256_unpackhi_epi8(row2, row3);
      const __m256i quads[] = {_mm256_unpacklo_epi16(low01, low23), _mm256_unpackhi_epi16(low01, low23),
                               _mm256_unpacklo_epi16(high01, high23), _mm256_unpackhi_epi16(high01, high23)};
#pragma GCC unroll 2
      for (int i = 0; i < kRows; ++i) {
        const __m256i a = _mm256_set1_epi32(DwordAt(staged + i * staged_stride + depth));
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) sum[i][half][j] = _mm256_dpbusd_avx_epi32(sum[i][half][j], a, quads[j]);
      }
    }
  }
#pragma GCC unroll 2
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) AddFours(sum[i][half], sums + i * sums_stride + half * kHalf);
  }
}

[[INTACT_AVX_VNNI]] void AddBlockByAvxVnni(const Block& block, const uint8_t* staged, int64_t staged_stride,
                                           int64_t rows, int32_t* sums, int64_t sums_stride) {
  const __m256i shift = _mm256_set1_epi8(static_cast<char>(block.shift));
  const int64_t paired_rows = rows / 2 * 2;
  for (int64_t row = 0; row < paired_rows; row += 2, staged += 2 * staged_stride, sums += 2 * sums_stride) {
    for (const int64_t half : {int64_t{0}, kColumns / 2}) {
      AddHalves<2, 1>(block.b + half, block.stride, shift, staged, staged_stride, sums + half, sums_stride);
    }
  }
  if (rows > paired_rows)
    AddHalves<1, 2>(block.b, block.stride, shift, staged, staged_stride, sums, sums_stride);
}

// ----- AVX-512 ---------------------------------------------------------------------------------------------

#define INTACT_AVX512 gnu::target("avx512f,avx512bw,avx512vl")

// Adds sums of a block's columns. Vector j has columns 4·j to 4·j + 3 of each sixteen: a transpose of 128-bit
// lanes.
[[INTACT_AVX512]] inline void AddFours(const __m512i* fours, int32_t* sums) {
  constexpr __mmask16 kAll = 0xffff;  // GCC 12 warns about its forms without a mask
  const __m512i low01 = _mm512_maskz_shuffle_i32x4(kAll, fours[0], fours[1], 0x44);
  const __m512i high01 = _mm512_maskz_shuffle_i32x4(kAll, fours[0], fours[1], 0xee);
  const __m512i low23 = _mm512_maskz_shuffle_i32x4(kAll, fours[2], fours[3], 0x44);
  const __m512i high23 = _mm512_maskz_shuffle_i32x4(kAll, fours[2], fours[3], 0xee);
  const __m512i columns[] = {_mm512_maskz_shuffle_i32x4(kAll, low01, low23, 0x88),
                             _mm512_maskz_shuffle_i32x4(kAll, low01, low23, 0xdd),
                             _mm512_maskz_shuffle_i32x4(kAll, high01, high23, 0x88),
                             _mm512_maskz_shuffle_i32x4(kAll, high01, high23, 0xdd)};
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    int32_t* const sixteen = sums + j * 16;
    _mm512_storeu_si512(sixteen, _mm512_add_epi32(_mm512_loadu_si512(sixteen), columns[j]));
  }
}

// AddPairs() for all columns of a block at once.
template <int64_t kBlock>
[[INTACT_AVX512]] inline void AddPairsOfLine(const Block& block, __m512i shift, const uint8_t* staged,
                                             int32_t* sums) {
  __m512i l_low = {}, l_high = {}, h_low = {}, h_high = {};
  const int8_t* b = block.b;
  for (int pair = 0; pair < kBlock / 2; ++pair, b += 2 * block.stride) {
    const __m512i l = _mm512_set1_epi32(DwordAt(staged + pair * 8));
    const __m512i h = _mm512_set1_epi32(DwordAt(staged + pair * 8 + 4));
    const __m512i even = _mm512_xor_si512(_mm512_loadu_si512(b), shift);
    const __m512i odd = _mm512_xor_si512(_mm512_loadu_si512(b + block.stride), shift);
    const __m512i low = _mm512_unpacklo_epi8(even, odd), high = _mm512_unpackhi_epi8(even, odd);
    l_low = _mm512_add_epi16(l_low, _mm512_maddubs_epi16(l, low));
    l_high = _mm512_add_epi16(l_high, _mm512_maddubs_epi16(l, high));
    h_low = _mm512_add_epi16(h_low, _mm512_maddubs_epi16(h, low));
    h_high = _mm512_add_epi16(h_high, _mm512_maddubs_epi16(h, high));
  }
  const __m512i factors = _mm512_set1_epi32(16 << 16 | 1);  // l + 16·h
  const __m512i fours[] = {_mm512_madd_epi16(_mm512_unpacklo_epi16(l_low, h_low), factors),
                           _mm512_madd_epi16(_mm512_unpackhi_epi16(l_low, h_low), factors),
                           _mm512_madd_epi16(_mm512_unpacklo_epi16(l_high, h_high), factors),
                           _mm512_madd_epi16(_mm512_unpackhi_epi16(l_high, h_high), factors)};
  AddFours(fours, sums);
}

template <int64_t kBlock>
[[INTACT_AVX512]] void AddBlockByAvx512(const Block& block, const uint8_t* staged, int64_t staged_stride,
                                        int64_t rows, int32_t* sums, int64_t sums_stride) {
  const __m512i shift = _mm512_set1_epi8(static_cast<char>(block.shift));
  for (int64_t row = 0; row < rows; ++row) {
    AddPairsOfLine<kBlock>(block, shift, staged + row * staged_stride, sums + row * sums_stride);
  }
}

// ----- AVX-512-VNNI ----------------------------------------------------------------------------------------

#define INTACT_AVX512_VNNI gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")

// A block's products for kRows rows, with quads of four columns of each 128-bit lane in a vector.
template <int kRows, int64_t kBlock>
[[INTACT_AVX512_VNNI]] inline void AddQuads(const Block& block, const uint8_t* staged, int64_t staged_stride,
                                            int32_t* sums, int64_t sums_stride) {
  const __m512i shift = _mm512_set1_epi8(static_cast<char>(block.shift));
  __m512i sum[kRows][4] = {};
  const int8_t* b = block.b;
  for (int64_t depth = 0; depth < kBlock; depth += kQuad, b += kQuad * block.stride) {
    __m512i row[kQuad];
#pragma GCC unroll 4
    for (int i = 0; i < kQuad; ++i)
      row[i] = _mm512_xor_si512(_mm512_loadu_si512(b + i * block.stride), shift);
    const __m512i low01 = _mm512_unpacklo_epi8(row[0], row[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(row[2], row[3]);
    const __m512i high01 = _mm512_unpackhi_epi8(row[0], row[1]);
    const __m512i high23 = _mm512_unpackhi_epi8(row[2], row[3]);
    const __m512i quads[] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                             _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const __m512i a = _mm512_set1_epi32(DwordAt(staged + i * staged_stride + depth));
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], a, quads[j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) AddFours(sum[i], sums + i * sums_stride);
}

template <int64_t kBlock>
[[INTACT_AVX512_VNNI]] void AddBlockByVnni(const Block& block, const uint8_t* staged, int64_t staged_stride,
                                           int64_t rows, int32_t* sums, int64_t sums_stride) {
  int64_t row = 0;
  for (; row + 4 <= rows; row += 4) {
    AddQuads<4, kBlock>(block, staged + row * staged_stride, staged_stride, sums + row * sums_stride,
                        sums_stride);
  }
  staged += row * staged_stride;
  sums += row * sums_stride;
  if (rows - row == 1) AddQuads<1, kBlock>(block, staged, staged_stride, sums, sums_stride);
  if (rows - row == 2) AddQuads<2, kBlock>(block, staged, staged_stride, sums, sums_stride);
  if (rows - row == 3) AddQuads<3, kBlock>(block, staged, staged_stride, sums, sums_stride);
}

[[INTACT_AVX512_VNNI]] void AddColumnsByVnni(const Columns& columns, const uint8_t* staged, int32_t* sums) {
  const __m512i shift = _mm512_set1_epi8(static_cast<char>(columns.shift));
  __m512i total[kAtOnce] = {};
  for (int64_t depth = 0; depth < columns.depths; depth += kDepths) {
    const __m512i a = _mm512_loadu_si512(staged + depth);
#pragma GCC unroll 4
    for (size_t column = 0; column < kAtOnce; ++column) {
      const __m512i b = _mm512_xor_si512(_mm512_loadu_si512(columns.At(column, depth)), shift);
      total[column] = _mm512_dpbusd_epi32(total[column], a, b);
    }
    if (columns.ahead != 0) {
#pragma GCC unroll 4
      for (size_t column = 0; column < kAtOnce; ++column) {
        _mm_prefetch(columns.whole[column] + depth + columns.ahead, _MM_HINT_T0);
      }
    }
  }
  constexpr __mmask8 kAll = 0xff;  // GCC 12 warns about its forms without a mask
  __m256i halves[kAtOnce];
#pragma GCC unroll 4
  for (size_t column = 0; column < kAtOnce; ++column) {
    halves[column] = _mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(kAll, total[column], 0),
                                      _mm512_maskz_extracti64x4_epi64(kAll, total[column], 1));
  }
  AddTotals(halves, sums);
}

#undef INTACT_AVX_VNNI
#undef INTACT_AVX512
#undef INTACT_AVX512_VNNI

}  // namespace

UnpackedProduct UnpackedProduct::For(core::Isa isa, const WeightView& b) {
  const auto has = [&](const core::VectorFile& vectors, core::Isa least) {
    return core::TraitsOf(VectorIsa(isa)).vectors.bytes == vectors.bytes && jit::HardwareIsas().Has(least);
  };
  const bool is_vnni = DotOf(isa, INTACT_EXACT) == jit::DotKind::kVnni;
  const bool has_vnni = is_vnni && has(core::kZmm, core::Isa::kAvx512Vnni);
  const bool has_avx_vnni = is_vnni && has(core::kYmm, core::Isa::kAvxVnni);
  const bool has_columns = b.stride_k == 1;
  const RuntimeCosts& costs = Costs().runtime;
  if (has_vnni && has_columns)
    return {StageBytes, AddColumns<AddColumnsByVnni, 1>, 1, &costs.vnni_columns, "vnni"};
  if (has_vnni)
    return {StageBytes, AddRowsInBlocks<AddBlockByVnni<kFewDepths>, AddBlockByVnni<kBlockDepths>, 1, 1>, 1,
            &costs.vnni_rows, "vnni"};
  if (has_columns) return {StageHalves, AddColumns<AddColumnsByAvx2, 2>, 2, &costs.split_columns, "split"};
  if (has_avx_vnni) return {StageBytes, AddRows<AddBlockByAvxVnni, 1>, 1, &costs.ymm_vnni_rows, "vnni"};
  if (has(core::kZmm, core::Isa::kAvx512))
    return {StagePairs, AddRowsInBlocks<AddBlockByAvx512<kFewDepths>, AddBlockByAvx512<kBlockDepths>, 4, 1>,
            4, &costs.zmm_split_rows, "split"};
  return {StagePairs,
          AddRowsInBlocks<AddBlockByAvx2<kFewDepths>, AddBlockByAvx2<kBlockDepths>, 4, kMostReadingRows,
                          kColumnsAheadByAvx2>,
          4, &costs.split_rows, "split"};
}

}  // namespace intact::kernels
