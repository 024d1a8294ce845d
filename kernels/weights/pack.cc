#include "kernels/weights/pack.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/isas.h"
#include "jit/emitters/emitter.h"
#include "jit/isa.h"
#include "kernels/problem/output_map.h"

namespace intact::kernels {
namespace {

constexpr int64_t kVector = 16;  // bytes of an SSE register
// A cache line of each row at a time is packed, so that adjacent quads are written together.
constexpr int64_t kLine = 64;

__m128i LoadHalf(const uint8_t* from) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)); }

__m128i LoadVector(const uint8_t* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

void StoreVector(uint8_t* to, __m128i value) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value); }

void StoreQuad(uint8_t* to, __m128i vector) {
  const int quad = _mm_cvtsi128_si32(vector);
  std::memcpy(to, &quad, sizeof(quad));
}

int LoadQuad(const uint8_t* from) {
  int quad = 0;
  std::memcpy(&quad, from, sizeof(quad));
  return quad;
}

// Packs quads of rows, and keeps the largest activation.
class QuadPacker {
 public:
  QuadPacker(uint8_t shift, int64_t quad_stride)
      : shift_(_mm_set1_epi8(static_cast<char>(shift))), quad_stride_(quad_stride) {}

  // Four rows, whole quads: sixteen depths at a time are a 4×4 transpose.
  void FourRows(const uint8_t* const* rows, int64_t offset, int64_t depth, uint8_t* panel) {
    int64_t k = 0;
    for (; k + kVector <= depth; k += kVector, panel += 4 * quad_stride_) {
      const __m128i row0 = Shift(LoadVector(rows[0] + offset + k));
      const __m128i row1 = Shift(LoadVector(rows[1] + offset + k));
      const __m128i row2 = Shift(LoadVector(rows[2] + offset + k));
      const __m128i row3 = Shift(LoadVector(rows[3] + offset + k));
      const __m128i low01 = _mm_unpacklo_epi32(row0, row1);
      const __m128i low23 = _mm_unpacklo_epi32(row2, row3);
      const __m128i high01 = _mm_unpackhi_epi32(row0, row1);
      const __m128i high23 = _mm_unpackhi_epi32(row2, row3);
      StoreVector(panel, _mm_unpacklo_epi64(low01, low23));
      StoreVector(panel + quad_stride_, _mm_unpackhi_epi64(low01, low23));
      StoreVector(panel + 2 * quad_stride_, _mm_unpacklo_epi64(high01, high23));
      StoreVector(panel + 3 * quad_stride_, _mm_unpackhi_epi64(high01, high23));
    }
    if (k + kVector / 2 <= depth) {
      const auto half = [&](int row) { return LoadHalf(rows[row] + offset + k); };
      const __m128i rows01 = Shift(_mm_unpacklo_epi32(half(0), half(1)));
      const __m128i rows23 = Shift(_mm_unpacklo_epi32(half(2), half(3)));
      StoreVector(panel, _mm_unpacklo_epi64(rows01, rows23));
      StoreVector(panel + quad_stride_, _mm_unpackhi_epi64(rows01, rows23));
      k += kVector / 2;
      panel += 2 * quad_stride_;
    }
    for (; k < depth; k += kQuad, panel += quad_stride_) {
      const auto quad = [&](int row) { return LoadQuad(rows[row] + offset + k); };
      StoreVector(panel, Shift(_mm_setr_epi32(quad(0), quad(1), quad(2), quad(3))));
    }
  }

  // One row from depth `begin`, a whole quad. Padding of a partial quad is multiplied by zero weights; it is
  // zero, so that it is never the largest activation.
  void OneRow(const uint8_t* row, int64_t begin, int64_t k, uint8_t* panel) {
    int64_t depth = begin;
    for (; depth + kVector <= k; depth += kVector) {
      const __m128i quads = Shift(LoadVector(row + depth));
      uint8_t* const to = panel + depth / kQuad * quad_stride_;
      StoreQuad(to, quads);
      StoreQuad(to + quad_stride_, _mm_srli_si128(quads, kQuad));
      StoreQuad(to + 2 * quad_stride_, _mm_srli_si128(quads, 2 * kQuad));
      StoreQuad(to + 3 * quad_stride_, _mm_srli_si128(quads, 3 * kQuad));
    }
    for (; depth < k; depth += kQuad) {
      const auto shift = static_cast<uint8_t>(_mm_cvtsi128_si32(shift_));
      const __m128i quad = _mm_cvtsi32_si128(static_cast<int>(FirstQuad(row + depth, k - depth, shift)));
      Count(quad);
      StoreQuad(panel + depth / kQuad * quad_stride_, quad);
    }
  }

  void Count(__m128i activations) { largest_ = _mm_max_epu8(largest_, activations); }

  uint8_t Largest() const {
    alignas(16) std::array<uint8_t, kVector> bytes;
    StoreVector(bytes.data(), largest_);
    return *std::max_element(bytes.begin(), bytes.end());
  }

 private:
  __m128i Shift(__m128i bytes) {
    const __m128i shifted = _mm_xor_si128(bytes, shift_);
    largest_ = _mm_max_epu8(largest_, shifted);
    return shifted;
  }

  __m128i shift_;
  int64_t quad_stride_;
  __m128i largest_ = _mm_setzero_si128();
};

// Row 0 in the low half of a vector and row 4 in the high half: a 4×4 transpose of 32-bit quads then turns
// eight rows at once.
[[gnu::target("avx2")]] inline __m256i LoadRows(const uint8_t* low, const uint8_t* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(LoadVector(low)), LoadVector(high), 1);
}

// Eight depths of rows 0 and 1 with alternating quads in the low half, of rows 4 and 5 in the high half.
[[gnu::target("avx2")]] inline __m256i LoadHalves(const uint8_t* const* rows, int64_t offset) {
  const __m128i low = _mm_unpacklo_epi32(LoadHalf(rows[0] + offset), LoadHalf(rows[1] + offset));
  const __m128i high = _mm_unpacklo_epi32(LoadHalf(rows[4] + offset), LoadHalf(rows[5] + offset));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

[[gnu::target("avx2")]] inline void StoreRows(uint8_t* to, __m256i value) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
}

// The last quad of rows 0 to 7 before depth `end`. It has `depths` depths, then zeros. Loads eight depths.
[[gnu::target("avx2")]] inline __m256i LoadLastQuads(const uint8_t* const* rows, int64_t end, __m256i shifts,
                                                     int64_t depths) {
  const int64_t begin = end - kVector / 2;
  const __m256i quads = _mm256_unpackhi_epi64(LoadHalves(rows, begin), LoadHalves(rows + 2, begin));
  const auto missing_bits = static_cast<int>(8 * (kQuad - depths));
  return _mm256_srl_epi32(_mm256_xor_si256(quads, shifts), _mm_cvtsi32_si128(missing_bits));
}

// Packs `depth` depths of row_count rows from `offset` on, eight rows at a time. Before the end of a row
// there are at least eight depths, because the last quads are loaded with depths before them. Returns the
// largest activation in each byte if `kCounts`.
template <bool kCounts>
[[gnu::target("avx2")]] __m128i PackEights(const uint8_t* const* rows, size_t row_count, int64_t offset,
                                           int64_t depth, uint8_t shift, int64_t quad_stride,
                                           uint8_t* panel) {
  const __m256i shifts = _mm256_set1_epi8(static_cast<char>(shift));
  __m256i largest = _mm256_setzero_si256();
  for (size_t first = 0; first < row_count; first += 8, panel += 8 * kQuad) {
    const uint8_t* const* const eight = rows + first;
    uint8_t* to = panel;
    int64_t k = 0;
    for (; k + kVector <= depth; k += kVector, to += 4 * quad_stride) {
      const int64_t at = offset + k;
      const __m256i rows0 = _mm256_xor_si256(LoadRows(eight[0] + at, eight[4] + at), shifts);
      const __m256i rows1 = _mm256_xor_si256(LoadRows(eight[1] + at, eight[5] + at), shifts);
      const __m256i rows2 = _mm256_xor_si256(LoadRows(eight[2] + at, eight[6] + at), shifts);
      const __m256i rows3 = _mm256_xor_si256(LoadRows(eight[3] + at, eight[7] + at), shifts);
      if constexpr (kCounts) {
        largest = _mm256_max_epu8(
            largest, _mm256_max_epu8(_mm256_max_epu8(rows0, rows1), _mm256_max_epu8(rows2, rows3)));
      }
      const __m256i low01 = _mm256_unpacklo_epi32(rows0, rows1);
      const __m256i low23 = _mm256_unpacklo_epi32(rows2, rows3);
      const __m256i high01 = _mm256_unpackhi_epi32(rows0, rows1);
      const __m256i high23 = _mm256_unpackhi_epi32(rows2, rows3);
      StoreRows(to, _mm256_unpacklo_epi64(low01, low23));
      StoreRows(to + quad_stride, _mm256_unpackhi_epi64(low01, low23));
      StoreRows(to + 2 * quad_stride, _mm256_unpacklo_epi64(high01, high23));
      StoreRows(to + 3 * quad_stride, _mm256_unpackhi_epi64(high01, high23));
    }
    if (k + kVector / 2 <= depth) {
      const __m256i rows01 = _mm256_xor_si256(LoadHalves(eight, offset + k), shifts);
      const __m256i rows23 = _mm256_xor_si256(LoadHalves(eight + 2, offset + k), shifts);
      if constexpr (kCounts) largest = _mm256_max_epu8(largest, _mm256_max_epu8(rows01, rows23));
      StoreRows(to, _mm256_unpacklo_epi64(rows01, rows23));
      StoreRows(to + quad_stride, _mm256_unpackhi_epi64(rows01, rows23));
      k += kVector / 2;
      to += 2 * quad_stride;
    }
    for (; k < depth; k += kQuad, to += quad_stride) {
      const int64_t depths = std::min<int64_t>(kQuad, depth - k);
      const __m256i quads = LoadLastQuads(eight, offset + k + depths, shifts, depths);
      if constexpr (kCounts) largest = _mm256_max_epu8(largest, quads);
      StoreRows(to, quads);
    }
  }
  return _mm_max_epu8(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
}

// PackEights() for a line of sixteen rows: a vector has 16 depths of rows i, i + 4, i + 8 and i + 12.
[[gnu::target("avx512f,avx512bw")]] void PackSixteen(const uint8_t* const* rows, int64_t offset,
                                                     uint8_t shift, uint8_t* panel) {
  constexpr __mmask16 kAll = 0xffff;  // GCC 12 warns about the forms without a mask
  const __m512i shifts = _mm512_set1_epi8(static_cast<char>(shift));
  for (int64_t k = offset; k < offset + kLine; k += kVector, panel += 4 * kPanelQuadBytes) {
    const auto load = [&](int i) __attribute__((target("avx512f,avx512bw"))) {
      __m512i four = _mm512_castsi128_si512(LoadVector(rows[i] + k));
      four = _mm512_mask_broadcast_i32x4(four, 0x00f0, LoadVector(rows[i + 4] + k));
      four = _mm512_mask_broadcast_i32x4(four, 0x0f00, LoadVector(rows[i + 8] + k));
      four = _mm512_mask_broadcast_i32x4(four, 0xf000, LoadVector(rows[i + 12] + k));
      return _mm512_xor_si512(four, shifts);
    };
    const __m512i rows0 = load(0), rows1 = load(1), rows2 = load(2), rows3 = load(3);
    const __m512i low01 = _mm512_maskz_unpacklo_epi32(kAll, rows0, rows1);
    const __m512i low23 = _mm512_maskz_unpacklo_epi32(kAll, rows2, rows3);
    const __m512i high01 = _mm512_maskz_unpackhi_epi32(kAll, rows0, rows1);
    const __m512i high23 = _mm512_maskz_unpackhi_epi32(kAll, rows2, rows3);
    _mm512_storeu_si512(panel, _mm512_maskz_unpacklo_epi64(0xff, low01, low23));
    _mm512_storeu_si512(panel + kPanelQuadBytes, _mm512_maskz_unpackhi_epi64(0xff, low01, low23));
    _mm512_storeu_si512(panel + 2 * kPanelQuadBytes, _mm512_maskz_unpacklo_epi64(0xff, high01, high23));
    _mm512_storeu_si512(panel + 3 * kPanelQuadBytes, _mm512_maskz_unpackhi_epi64(0xff, high01, high23));
  }
}

// `columns` bytes of a row, shifted and padded with zeros to 16.
__m128i LoadColumns(const int8_t* row, int64_t columns, uint8_t shift) {
  if (columns == kPanelColumns) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row));
    return _mm_xor_si128(bytes, _mm_set1_epi8(static_cast<char>(shift)));
  }
  alignas(16) std::array<int8_t, kPanelColumns> padded = {};
  std::transform(row, row + columns, padded.begin(),
                 [&](int8_t w) { return static_cast<int8_t>(w ^ shift); });
  return _mm_load_si128(reinterpret_cast<const __m128i*>(padded.data()));
}

// Packs a quad of a panel from `depths` rows of `columns`; missing rows are zero.
void PackQuad(const int8_t* from, int64_t stride, int64_t depths, int64_t columns, uint8_t shift,
              int8_t* to) {
  const auto row = [&](int64_t i) {
    return i < depths ? LoadColumns(from + i * stride, columns, shift) : _mm_setzero_si128();
  };
  const __m128i row0 = row(0);
  const __m128i row1 = row(1);
  const __m128i row2 = row(2);
  const __m128i row3 = row(3);
  const __m128i low01 = _mm_unpacklo_epi8(row0, row1);
  const __m128i low23 = _mm_unpacklo_epi8(row2, row3);
  const __m128i high01 = _mm_unpackhi_epi8(row0, row1);
  const __m128i high23 = _mm_unpackhi_epi8(row2, row3);
  auto* const out = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(out, _mm_unpacklo_epi16(low01, low23));
  _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(low01, low23));
  _mm_storeu_si128(out + 2, _mm_unpacklo_epi16(high01, high23));
  _mm_storeu_si128(out + 3, _mm_unpackhi_epi16(high01, high23));
}

// Packs columns of B that are contiguous: PackActivations() packs them like rows of A.
void PackColumns(const WeightView& b, const PackedWeights& sizes, int8_t* panels) {
  for (int64_t panel = 0; panel < sizes.panels(); ++panel) {
    int8_t* const to = panels + panel * sizes.panel_stride_bytes();
    const int64_t first = panel * kPanelColumns;
    const int64_t columns = std::min<int64_t>(kPanelColumns, b.n - first);
    const int64_t filled = columns == sizes.width ? sizes.quads() * sizes.quad_bytes() : 0;
    if (filled < sizes.panel_stride_bytes()) {
      std::memset(to + filled, 0, static_cast<size_t>(sizes.panel_stride_bytes() - filled));
    }
    std::array<const uint8_t*, kPanelColumns> column;
    for (int64_t i = 0; i < columns; ++i) {
      column[static_cast<size_t>(i)] = reinterpret_cast<const uint8_t*>(b.data) + (first + i) * b.stride_n;
    }
    auto* const bytes = reinterpret_cast<uint8_t*>(to);
    if (columns == kPanelColumns && b.k % (kVector / 2) == 0 && HasAvx2()) {
      for (int64_t k = 0; k < b.k; k += kLine) {
        // The next panel's lines. Hardware prefetchers do not follow so many columns.
        const auto next = static_cast<uintptr_t>(kPanelColumns * b.stride_n + k);
        for (const uint8_t* from : column) {
          const auto at = reinterpret_cast<uintptr_t>(from) + next;
          __builtin_prefetch(reinterpret_cast<const void*>(at));  // NOLINT(performance-no-int-to-ptr)
        }
        uint8_t* const quads = bytes + k * kPanelColumns;
        if (b.k - k >= kLine && HasAvx512()) {
          PackSixteen(column.data(), k, b.shift, quads);
        } else {
          PackEights<false>(column.data(), kPanelColumns, k, std::min(kLine, b.k - k), b.shift,
                            kPanelQuadBytes, quads);
        }
      }
      continue;
    }
    PackActivations({column.data(), static_cast<size_t>(columns)}, 0, b.k, b.shift, sizes.width, bytes);
  }
}

// PackQuad() for `quads` whole quads of 2·`pairs` panels, which lie `panel_stride` bytes apart. All lines of
// a quad's rows are read before the next quad's: L1 may not hold the lines of many rows.
[[gnu::target("avx2")]] void PackPairs(const int8_t* from, int64_t stride, int64_t quads, int64_t pairs,
                                       uint8_t shift, int64_t panel_stride, int8_t* to) {
  const __m256i shifts = _mm256_set1_epi8(static_cast<char>(shift));
  for (int64_t quad = 0; quad < quads; ++quad, from += kQuad * stride, to += kPanelQuadBytes) {
    for (int64_t pair = 0; pair < pairs; ++pair) {
      const auto row = [&](int64_t i) __attribute__((target("avx2"))) {
        const int8_t* const at = from + i * stride + pair * 2 * kPanelColumns;
        return _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), shifts);
      };
      const __m256i row0 = row(0);
      const __m256i row1 = row(1);
      const __m256i row2 = row(2);
      const __m256i row3 = row(3);
      const __m256i low01 = _mm256_unpacklo_epi8(row0, row1);
      const __m256i low23 = _mm256_unpacklo_epi8(row2, row3);
      const __m256i high01 = _mm256_unpackhi_epi8(row0, row1);
      const __m256i high23 = _mm256_unpackhi_epi8(row2, row3);
      const __m256i columns[] = {_mm256_unpacklo_epi16(low01, low23), _mm256_unpackhi_epi16(low01, low23),
                                 _mm256_unpacklo_epi16(high01, high23),
                                 _mm256_unpackhi_epi16(high01, high23)};
      int8_t* const first = to + pair * 2 * panel_stride;
      for (int64_t i = 0; i < kQuad; ++i) {
        auto* const low = reinterpret_cast<__m128i*>(first + i * kVector);
        auto* const high = reinterpret_cast<__m128i*>(first + panel_stride + i * kVector);
        _mm_storeu_si128(low, _mm256_castsi256_si128(columns[i]));
        _mm_storeu_si128(high, _mm256_extracti128_si256(columns[i], 1));
      }
    }
  }
}

// Packs rows of B that are contiguous: four depths of a panel's columns become a quad. It reads a kilobyte of
// a row and few rows at a time, so that few pages are in use, and writes adjacent quads of a panel. Each quad
// is written with 16 columns: in a narrow panel the next quad overwrites the surplus.
void PackRows(const WeightView& b, const PackedWeights& sizes, int8_t* panels) {
  constexpr int64_t kPanelsAtOnce = 64;
  constexpr int64_t kQuadsAtOnce = 16;
  const int64_t quads =
      sizes.panel_stride_bytes() / sizes.quad_bytes();  // a multiple of kQuadsAtOnce: 64 depths
  for (int64_t begin = 0; begin < sizes.panels(); begin += kPanelsAtOnce) {
    const int64_t end = std::min(sizes.panels(), begin + kPanelsAtOnce);
    for (int64_t block = 0; block < quads; block += kQuadsAtOnce) {
      const bool is_whole = (block + kQuadsAtOnce) * kQuad <= b.k;
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t first = panel * kPanelColumns;
        const int64_t columns = std::min<int64_t>(kPanelColumns, b.n - first);
        int8_t* const to = panels + panel * sizes.panel_stride_bytes();
        const int64_t pairs = std::min<int64_t>(std::min(b.n / kPanelColumns, end) - panel, 4) / 2;
        if (is_whole && pairs > 0 && HasAvx2()) {
          PackPairs(b.data + block * kQuad * b.stride_k + first, b.stride_k, kQuadsAtOnce, pairs, b.shift,
                    sizes.panel_stride_bytes(), to + block * kPanelQuadBytes);
          panel += 2 * pairs - 1;
          continue;
        }
        for (int64_t quad = block; quad < block + kQuadsAtOnce; ++quad) {
          const int64_t depths = std::clamp<int64_t>(b.k - quad * kQuad, 0, kQuad);
          const int8_t* const from = b.data + quad * kQuad * b.stride_k + first;
          PackQuad(from, b.stride_k, depths, columns, b.shift, to + quad * sizes.quad_bytes());
        }
      }
    }
  }
}

void PackElements(const WeightView& b, const PackedWeights& sizes, int8_t* panels) {
  std::memset(panels, 0, static_cast<size_t>(sizes.bytes()));
  for (int64_t n = 0; n < b.n; ++n) {
    int8_t* const panel = panels + n / kPanelColumns * sizes.panel_stride_bytes();
    for (int64_t k = 0; k < b.k; ++k) {
      panel[OffsetInPanel(k, n % kPanelColumns, sizes.quad_bytes())] = b.At(k, n);
    }
  }
}

// Adds the sums of a panel's columns over quads [begin, end), `step` bytes apart, to `sums`.
void AddQuads(const int8_t* begin, const int8_t* end, int64_t step, uint32_t* sums) {
  const __m128i ones = _mm_set1_epi16(1);
  // Four columns at a time: the depths of a column are the bytes of a lane.
  for (int64_t offset = 0; offset < kPanelQuadBytes; offset += kVector, sums += kVector / kQuad) {
    auto* const four = reinterpret_cast<__m128i*>(sums);
    __m128i sum = _mm_loadu_si128(four);
    for (const int8_t* quad = begin; quad < end; quad += step) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad + offset));
      const __m128i even = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8);
      const __m128i odd = _mm_srai_epi16(bytes, 8);
      sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_add_epi16(even, odd), ones));
    }
    _mm_storeu_si128(four, sum);
  }
}

// AddQuads() for half a panel at a time.
[[gnu::target("avx2")]] void AddQuadsByAvx2(const int8_t* begin, const int8_t* end, int64_t step,
                                            uint32_t* sums) {
  constexpr int64_t kHalf = kPanelQuadBytes / 2;
  const __m256i ones = _mm256_set1_epi8(1);
  const __m256i word_ones = _mm256_set1_epi16(1);
  auto* const low = reinterpret_cast<__m256i*>(sums);
  auto* const high = reinterpret_cast<__m256i*>(sums + kPanelColumns / 2);
  __m256i low_sum = _mm256_loadu_si256(low);
  __m256i high_sum = _mm256_loadu_si256(high);
  for (const int8_t* quad = begin; quad < end; quad += step) {
    const __m256i low_bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quad));
    const __m256i high_bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(quad + kHalf));
    low_sum = _mm256_add_epi32(low_sum, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, low_bytes), word_ones));
    high_sum =
        _mm256_add_epi32(high_sum, _mm256_madd_epi16(_mm256_maddubs_epi16(ones, high_bytes), word_ones));
  }
  _mm256_storeu_si256(low, low_sum);
  _mm256_storeu_si256(high, high_sum);
}

// PackActivations() for rows of fewer depths than a quad.
template <int64_t depths>
uint8_t PackCutQuads(std::span<const uint8_t* const> rows, int64_t offset, uint8_t shift, uint8_t* panel) {
  uint32_t largest = 0;
  for (const uint8_t* const row : rows) {
    std::array<uint8_t, kQuad> quad = {};
    for (size_t i = 0; i < depths; ++i) {
      quad[i] = row[offset + static_cast<int64_t>(i)] ^ shift;
      largest = std::max<uint32_t>(largest, quad[i]);
    }
    std::memcpy(panel, quad.data(), kQuad);
    panel += kQuad;
  }
  return static_cast<uint8_t>(largest);
}

}  // namespace

bool PackWeights(const WeightView& b, PackedWeights* packed) noexcept {
  *packed = PackedWeights(b.k, b.n);
  if (!packed->owned.Resize(static_cast<size_t>(packed->bytes()))) return false;
  packed->data = packed->owned.data();
  PackPanels(b, *packed, packed->owned.data());
  return true;
}

int64_t WidePanels::TapPairs(const PackedWeights& weights, int64_t tap_depth) noexcept {
  const auto is_zero = [&](int64_t depth) {
    for (int64_t k = depth; k < weights.k; k += tap_depth) {
      for (int64_t n = 0; n < weights.n; ++n) {
        if (weights.At(k, n) != 0) return false;
      }
    }
    return true;
  };
  int64_t depths = tap_depth;
  while (depths > 1 && is_zero(depths - 1)) --depths;
  return (depths + 1) / 2;
}

bool WidePanels::Widen(const PackedWeights& weights, int64_t tap_depth) noexcept {
  tap_depth_ = tap_depth;
  tap_pairs_ = TapPairs(weights, tap_depth);
  const int64_t words = int64_t{2} * weights.width;  // of a pair of depths
  const int64_t panel_words = weights.k / tap_depth * tap_pairs_ * words;
  panel_stride_bytes_ = panel_words * static_cast<int64_t>(sizeof(int16_t));
  // Kernels read whole vectors of a narrow panel.
  constexpr int64_t kSlack = kPanelQuadBytes / sizeof(int16_t);
  if (!words_.Resize(static_cast<size_t>(weights.panels() * panel_words + kSlack))) return false;
  int16_t* to = words_.data();
  for (int64_t panel = 0; panel < weights.panels(); ++panel) {
    for (int64_t tap = 0; tap < weights.k; tap += tap_depth) {
      for (int64_t pair = 0; pair < tap_pairs_; ++pair) {
        const int8_t* const from =
            weights.Panel(panel) + OffsetInPanel(tap + 2 * pair, 0, weights.quad_bytes());
        for (int64_t word = 0; word < words; ++word) *to++ = from[word / 2 * kQuad + word % 2];
      }
    }
  }
  std::fill_n(to, kSlack, int16_t{0});
  return true;
}

void PackPanels(const WeightView& b, const PackedWeights& sizes, int8_t* panels) noexcept {
  const int64_t end = sizes.panels() * sizes.panel_stride_bytes();
  std::memset(panels + end, 0, static_cast<size_t>(sizes.bytes() - end));
  if (b.stride_k == 1) {
    PackColumns(b, sizes, panels);
  } else if (b.stride_n == 1) {
    PackRows(b, sizes, panels);
  } else {
    PackElements(b, sizes, panels);
  }
}

void CopyDepths(const PackedWeights& weights, int64_t k, int64_t n, int64_t count, int8_t* to) noexcept {
  const int8_t* const column = weights.Panel(n / kPanelColumns) + n % kPanelColumns * kQuad;
  for (const int64_t end = k + count; k < end;) {
    const int8_t* const from = column + OffsetInPanel(k, 0, weights.quad_bytes());
    const int64_t depths = std::min(kQuad - k % kQuad, end - k);
    if (depths == kQuad) {
      std::memcpy(to, from, kQuad);
    } else {
      std::copy_n(from, depths, to);
    }
    k += depths;
    to += depths;
  }
}

void CopyColumns(const PackedWeights& weights, int8_t* to) noexcept {
  constexpr int64_t kColumns = kVector / kQuad;
  for (int64_t n = 0; n < weights.n; n += kColumns) {
    const int64_t columns = std::min(kColumns, weights.n - n);
    int64_t k = 0;
    // Sixteen depths of four columns: a 4×4 transpose of quads.
    for (; columns == kColumns && k + kVector <= weights.k; k += kVector) {
      const auto* const from = reinterpret_cast<const uint8_t*>(
          weights.Panel(n / kPanelColumns) + OffsetInPanel(k, n % kPanelColumns, weights.quad_bytes()));
      const __m128i quad0 = LoadVector(from);
      const __m128i quad1 = LoadVector(from + weights.quad_bytes());
      const __m128i quad2 = LoadVector(from + 2 * weights.quad_bytes());
      const __m128i quad3 = LoadVector(from + 3 * weights.quad_bytes());
      const __m128i low01 = _mm_unpacklo_epi32(quad0, quad1);
      const __m128i low23 = _mm_unpacklo_epi32(quad2, quad3);
      const __m128i high01 = _mm_unpackhi_epi32(quad0, quad1);
      const __m128i high23 = _mm_unpackhi_epi32(quad2, quad3);
      auto* const column = reinterpret_cast<uint8_t*>(to + n * weights.k + k);
      StoreVector(column, _mm_unpacklo_epi64(low01, low23));
      StoreVector(column + weights.k, _mm_unpackhi_epi64(low01, low23));
      StoreVector(column + 2 * weights.k, _mm_unpacklo_epi64(high01, high23));
      StoreVector(column + 3 * weights.k, _mm_unpackhi_epi64(high01, high23));
    }
    for (int64_t i = n; i < n + columns; ++i) {
      CopyDepths(weights, k, i, weights.k - k, to + i * weights.k + k);
    }
  }
}

void AddDepths(const PackedWeights& weights, int64_t k_begin, int64_t k_end, uint32_t* sums) noexcept {
  const auto add = HasAvx2() ? AddQuadsByAvx2 : AddQuads;
  for (int64_t panel = 0; panel < weights.panels(); ++panel, sums += kPanelColumns) {
    const int8_t* const quads = weights.Panel(panel);
    const int64_t step = weights.quad_bytes();
    add(quads + k_begin / kQuad * step, quads + k_end / kQuad * step, step, sums);
  }
}

uint8_t PackActivations(std::span<const uint8_t* const> rows, int64_t offset, int64_t k, uint8_t shift,
                        int64_t panel_rows, uint8_t* panel) noexcept {
  switch (k) {
    case 1:
      return PackCutQuads<1>(rows, offset, shift, panel);
    case 2:
      return PackCutQuads<2>(rows, offset, shift, panel);
    case 3:
      return PackCutQuads<3>(rows, offset, shift, panel);
    default:
      break;
  }
  const size_t in_eights = k >= kVector / 2 && HasAvx2() ? rows.size() / 8 * 8 : 0;
  const int64_t whole = k / kQuad * kQuad;
  const size_t in_fours = rows.size() / 4 * 4;
  const int64_t quad_stride = panel_rows * kQuad;
  QuadPacker packer(shift, quad_stride);
  const auto to = [&](size_t row) { return panel + static_cast<int64_t>(row) * kQuad; };
  for (int64_t begin = 0; begin < k && in_eights != 0; begin += kLine) {
    packer.Count(PackEights<true>(rows.data(), in_eights, offset + begin, std::min(kLine, k - begin), shift,
                                  quad_stride, panel + begin * panel_rows));
  }
  for (int64_t begin = 0; begin < whole && in_eights < in_fours; begin += kLine) {
    const int64_t depth = std::min(kLine, whole - begin);
    for (size_t row = in_eights; row < in_fours; row += 4) {
      packer.FourRows(&rows[row], offset + begin, depth, to(row) + begin * panel_rows);
    }
  }
  for (size_t row = whole == k ? in_fours : in_eights; row < rows.size(); ++row) {
    packer.OneRow(rows[row] + offset, row < in_fours ? whole : 0, k, to(row));
  }
  return packer.Largest();
}

void CopyActivations(const uint8_t* a, int64_t count, uint8_t shift, uint8_t* to) noexcept {
  if (shift == 0) return CopyRow(a, count, to);
  const __m128i shift_bytes = _mm_set1_epi8(static_cast<char>(shift));
  int64_t i = 0;
  for (; i + kVector <= count; i += kVector) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_xor_si128(bytes, shift_bytes));
  }
  for (; i + kQuad <= count; i += kQuad) {
    uint32_t quad = 0;
    std::memcpy(&quad, a + i, kQuad);
    quad ^= shift * 0x01010101u;
    std::memcpy(to + i, &quad, kQuad);
  }
  for (; i < count; ++i) to[i] = a[i] ^ shift;
}

void StageRow(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept {
  if (k % kQuad != 0) std::memset(staged + k / kQuad * kQuad, 0, kQuad);
  CopyActivations(a, k, shift, staged);
}

[[gnu::target("avx2")]] void StageWide(const uint8_t* a, int64_t k, uint8_t shift, uint8_t* staged) noexcept {
  const __m128i shift_bytes = _mm_set1_epi8(static_cast<char>(shift));
  const auto widen = [&](int64_t depth) __attribute__((target("avx2"), always_inline)) {
    const __m128i bytes = _mm_xor_si128(LoadVector(a + depth), shift_bytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(staged + 2 * depth), _mm256_cvtepu8_epi16(bytes));
  };
  int64_t depth = 0;
  for (; depth + kVector <= k; depth += kVector) widen(depth);
  if (depth == k) return;
  if (k >= kVector && k % 2 == 0) return widen(k - kVector);
  for (; depth < k; ++depth) {
    const uint16_t word = static_cast<uint8_t>(a[depth] ^ shift);
    std::memcpy(staged + 2 * depth, &word, sizeof(word));
  }
  if (k % 2 != 0) std::memset(staged + 2 * k, 0, sizeof(uint16_t));
}

[[gnu::target("avx512bw")]] void StageWideByAvx512(const uint8_t* a, int64_t k, uint8_t shift,
                                                   uint8_t* staged) noexcept {
  const __m256i shift_bytes = _mm256_set1_epi8(static_cast<char>(shift));
  int64_t depth = 0;
  for (; depth + 2 * kVector <= k; depth += 2 * kVector) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + depth));
    _mm512_storeu_si512(staged + 2 * depth, _mm512_cvtepu8_epi16(_mm256_xor_si256(bytes, shift_bytes)));
  }
  if (depth < k) StageWide(a + depth, k - depth, shift, staged + 2 * depth);
}

[[gnu::target("avx2")]] void StageSplit(const uint8_t* a, int64_t k, uint8_t shift,
                                        uint8_t* staged) noexcept {
  constexpr int kLowHalves = 0x0f0f0f0f;
  const __m256i shift_bytes = _mm256_set1_epi8(static_cast<char>(shift));
  const __m256i mask = _mm256_set1_epi32(kLowHalves);
  int64_t depth = 0;
  for (; depth + 2 * kVector <= k; depth += 2 * kVector, staged += 4 * kVector) {
    const __m256i loaded = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + depth));
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_xor_si256(loaded, shift_bytes), 0xd8);
    const __m256i low = _mm256_and_si256(bytes, mask);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi32(bytes, 4), mask);
    auto* const to = reinterpret_cast<__m256i*>(staged);
    _mm256_storeu_si256(to, _mm256_unpacklo_epi32(low, high));
    _mm256_storeu_si256(to + 1, _mm256_unpackhi_epi32(low, high));
  }
  for (; depth < k; depth += kQuad, staged += 2 * kQuad) {
    const uint32_t quad = FirstQuad(a + depth, k - depth, shift);
    const std::array<uint32_t, 2> halves = {quad & kLowHalves, (quad >> 4) & kLowHalves};
    std::memcpy(staged, halves.data(), sizeof(halves));
  }
}

StageFunction StageFor(jit::DotKind dot, core::Isa isa) {
  if (dot == jit::DotKind::kSplit) return StageSplit;
  if (dot != jit::DotKind::kWide) return StageRow;
  return jit::VectorBytes(isa) == 64 && HasAvx512() ? StageWideByAvx512 : StageWide;
}

bool HasAvx2() {
  static const bool kHas = jit::HardwareIsas().Has(core::Isa::kAvx2);
  return kHas;
}

bool HasAvx512() {
  static const bool kHas = jit::HardwareIsas().Has(core::Isa::kAvx512);
  return kHas;
}

}  // namespace intact::kernels
