#include "run.h"

#include <emmintrin.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace intact::onnxruntime {
namespace {

// Below this a part costs more than it saves: some microseconds of work.
constexpr int64_t kBytesOfPart = 1 << 16;

template <class Element>
__m128i UnpackLow(__m128i a, __m128i b) {
  return sizeof(Element) == 1 ? _mm_unpacklo_epi8(a, b) : _mm_unpacklo_epi32(a, b);
}
template <class Element>
__m128i UnpackHigh(__m128i a, __m128i b) {
  return sizeof(Element) == 1 ? _mm_unpackhi_epi8(a, b) : _mm_unpackhi_epi32(a, b);
}

// Transposes kSide × kSide elements, and writes the first `columns` columns; a vector has kSide elements. Row i and row
// i + kSide/2 are interleaved; after log2(kSide) rounds element (i, j) has moved to (j, i).
template <class Element>
void TransposeSquare(const Element* source, int64_t source_stride, Element* target, int64_t target_stride,
                     size_t columns = 16 / sizeof(Element)) {
  constexpr size_t kSide = 16 / sizeof(Element);
  __m128i rows[kSide], next[kSide];
  for (size_t i = 0; i < kSide; ++i)
    rows[i] =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + static_cast<int64_t>(i) * source_stride));
  for (size_t round = 1; round < kSide; round *= 2) {
    for (size_t i = 0; i < kSide / 2; ++i) {
      next[2 * i] = UnpackLow<Element>(rows[i], rows[i + kSide / 2]);
      next[2 * i + 1] = UnpackHigh<Element>(rows[i], rows[i + kSide / 2]);
    }
    std::copy_n(next, kSide, rows);
  }
  for (size_t i = 0; i < columns; ++i)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + static_cast<int64_t>(i) * target_stride), rows[i]);
}

// Transposes three rows of bytes, the channels of an image. Returns the number of columns that it has transposed. It leaves some,
// because a store writes two bytes beyond its columns.
int64_t TransposeThreeRows(const uint8_t* source, int64_t source_stride, uint8_t* target, int64_t columns) {
  const auto row = [&](int64_t i, int64_t c) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i * source_stride + c));
  };
  const __m128i even = _mm_set1_epi64x(0xFFFFFF), odd = _mm_set1_epi64x(0xFFFFFF000000);
  int64_t c = 0;
  for (; c + 16 < columns; c += 16) {
    const __m128i rows[] = {row(0, c), row(1, c), row(2, c)};
    for (const bool is_high : {false, true}) {
      const auto unpack = [&](__m128i a, __m128i b) {
        return is_high ? _mm_unpackhi_epi8(a, b) : _mm_unpacklo_epi8(a, b);
      };
      const __m128i first = unpack(rows[0], rows[1]), last = unpack(rows[2], _mm_setzero_si128());
      uint8_t* const pixels = target + (c + (is_high ? 8 : 0)) * 3;
      for (const bool is_second : {false, true}) {
        // Four columns, three bytes of each four.
        const __m128i four = is_second ? _mm_unpackhi_epi16(first, last) : _mm_unpacklo_epi16(first, last);
        const __m128i packed =
            _mm_or_si128(_mm_and_si128(four, even), _mm_and_si128(_mm_srli_epi64(four, 8), odd));
        uint8_t* const at = pixels + (is_second ? 12 : 0);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(at), packed);
        _mm_storel_epi64(reinterpret_cast<__m128i*>(at + 6), _mm_unpackhi_epi64(packed, packed));
      }
    }
  }
  return c;
}

template <class Element>
void TransposeMatrix(const Element* source, int64_t source_stride, Element* target, int64_t target_stride,
                     int64_t rows, int64_t columns) {
  constexpr int64_t kSide = 16 / sizeof(Element);
  const auto by_element = [&](int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
    for (int64_t c = column_begin; c < column_end; ++c)
      for (int64_t r = row_begin; r < row_end; ++r)
        target[c * target_stride + r] = source[r * source_stride + c];
  };
  if constexpr (sizeof(Element) == 1) {
    if (rows == 3 && target_stride == 3)
      return by_element(0, rows, TransposeThreeRows(source, source_stride, target, columns), columns);
  }
  const int64_t square_rows = rows - rows % kSide, square_columns = columns - columns % kSide;
  for (int64_t c = 0; c < square_columns; c += kSide)
    for (int64_t r = 0; r < square_rows; r += kSide)
      TransposeSquare(source + r * source_stride + c, source_stride, target + c * target_stride + r,
                      target_stride);
  by_element(square_rows, rows, 0, square_columns);
  // Vectors of the tail of the columns also read the next row, if there is one.
  const int64_t tail = columns - square_columns;
  const int64_t last = (rows - 1) * source_stride + tail - kSide;  // where a vector may begin
  const int64_t tail_rows =
      tail == 0 || last < 0 ? 0 : std::min(last / source_stride + 1, rows) / kSide * kSide;
  for (int64_t r = 0; r < tail_rows; r += kSide)
    TransposeSquare(source + r * source_stride + square_columns, source_stride,
                    target + square_columns * target_stride + r, target_stride, static_cast<size_t>(tail));
  by_element(tail_rows, rows, square_columns, columns);
}

}  // namespace

bool HasAvx2(const Settings& settings) {
  return settings.max_isa != INTACT_ISA_PORTABLE && intact_isa_available(INTACT_ISA_AVX2) != 0;
}

bool HasAvx512(const Settings& settings) { return integrations::MayUseAvx512(settings.max_isa); }

int Run::PartsOf(const PlanWork& work) const {
  return integrations::PartsOf(work, settings_.part_products, settings_.threads);
}

void Transpose(const float* source, int64_t source_stride, float* target, int64_t target_stride, int64_t rows,
               int64_t columns) {
  TransposeMatrix(source, source_stride, target, target_stride, rows, columns);
}

void Transpose(const uint8_t* source, int64_t source_stride, uint8_t* target, int64_t target_stride,
               int64_t rows, int64_t columns) {
  TransposeMatrix(source, source_stride, target, target_stride, rows, columns);
}

void Check(intact_status status) {
  if (status != INTACT_OK) throw std::runtime_error(intact_last_error());
}

OrtAllocator* Tensors::Allocator() {
  if (allocator_ == nullptr) allocator_.reset(context_.GetAllocator(*memory_));
  return allocator_.get();
}

Ort::ConstValue Tensors::Get(int slot) const {
  const auto place = static_cast<size_t>(slot);
  if (slots_[place].input >= 0) return context_.GetInput(static_cast<size_t>(slots_[place].input));
  const Tensor& tensor = tensors_[place];
  return tensor.own != nullptr ? tensor.own.GetConst() : Ort::ConstValue(tensor.output);
}

void* Tensors::Make(int slot, const std::vector<int64_t>& shape, bool is_channels_last) {
  const Slot& given = slots_[static_cast<size_t>(slot)];
  Tensor& tensor = tensors_[static_cast<size_t>(slot)];
  if (given.output >= 0 && !is_channels_last) {
    auto value = context_.GetOutput(static_cast<size_t>(given.output), shape);
    tensor.output = value;
    return value.GetTensorMutableRawData();
  }
  tensor.own = Ort::Value::CreateTensor(Allocator(), shape.data(), shape.size(), given.type);
  tensor.is_channels_last = is_channels_last;
  return tensor.own.GetTensorMutableRawData();
}

bool Tensors::HaveOneShape(std::span<const int> slots) const {
  std::vector<int64_t> first;
  for (const int slot : slots) {
    if (slot < 0) continue;
    const std::vector<int64_t> shape = Get(slot).GetTensorTypeAndShapeInfo().GetShape();
    if (first.empty()) first = shape;
    if (shape.size() != first.size() || !std::equal(shape.begin() + 1, shape.end(), first.begin() + 1))
      return false;
  }
  return true;
}

bool Tensors::IsUnfinished(int slot) const {
  const auto place = static_cast<size_t>(slot);
  return slots_[place].output >= 0 && tensors_[place].is_channels_last && tensors_[place].output == nullptr;
}

void Run::Begin(ElementOrder order, bool has_channels_last) {
  if (order == ElementOrder::kEither) {
    is_output_channels_last_ = has_channels_last;
    return;
  }
  if (order == ElementOrder::kElementwise) {
    is_output_channels_last_ = std::ranges::all_of(
        places_.inputs, [&](int slot) { return slot < 0 || tensors_.IsChannelsLast(slot); });
    if (is_output_channels_last_ && tensors_.HaveOneShape(places_.inputs)) return;
    is_output_channels_last_ = false;
  }
  for (const int slot : places_.inputs)
    if (slot >= 0 && tensors_.IsChannelsLast(slot)) PutChannelsFirst(slot);
}

void Run::End() {
  const int slot = places_.outputs.at(0);
  if (slot >= 0 && tensors_.IsUnfinished(slot)) PutChannelsFirst(slot);
}

void Run::PutChannelsFirst(int slot) const {
  tensors_.PutChannelsFirst(
      slot, [&](const void* source, void* target, size_t element_bytes, std::span<const int64_t> shape) {
        int64_t pixels = 1;
        for (const int64_t extent : shape.subspan(2)) pixels *= extent;
        if (pixels * shape[1] > 0) Transpose(source, target, element_bytes, shape[0], pixels, shape[1]);
      });
}

void* Run::Allocate(size_t bytes) {
  OrtAllocator* const allocator = tensors_.Allocator();
  void* const memory = allocator->Alloc(allocator, std::max<size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  memory_.emplace_back(memory, Free{allocator});
  return memory;
}

template <class Plan, class Args, class RunPart>
void Run::ComputeParts(const Plan& plan, const Args& args, const PlanWork& work, Chunks chunks,
                       RunPart run_part) const {
  const int parts = PartsOf(work);
  if (parts == 1) {
    for (int i = 0; i < chunks.count; ++i)
      Check(run_part(&plan, &args, chunks.is_reversed ? chunks.count - 1 - i : i, chunks.count));
    return;
  }
  ForEach(parts, [&](int64_t part) { Check(run_part(&plan, &args, static_cast<int32_t>(part), parts)); });
}

void Run::Compute(const intact_gemm& plan, const intact_gemm_args& args, const PlanWork& work,
                  Chunks chunks) const {
  ComputeParts(plan, args, work, chunks, intact_gemm_run_part);
}
void Run::Compute(const intact_conv& plan, const intact_conv_args& args, const PlanWork& work) const {
  ComputeParts(plan, args, work, {}, intact_conv_run_part);
}
void Run::Compute(const intact_grouped& plan, const intact_grouped_args& args, const PlanWork& work) const {
  ComputeParts(plan, args, work, {}, intact_grouped_run_part);
}

void Run::Transpose(const void* source, void* target, size_t element_bytes, int64_t matrices, int64_t rows,
                    int64_t columns) const {
  // Each item is a block of columns of one matrix, of about kBytesOfPart.
  const int64_t row_bytes = rows * static_cast<int64_t>(element_bytes);
  const int64_t block = (std::max<int64_t>(kBytesOfPart / row_bytes, 1) + 15) / 16 * 16;
  const int64_t blocks = (columns + block - 1) / block;
  const auto transpose = [&]<class Element>(const Element* from, Element* to) {
    ForEach(matrices * blocks, [&](int64_t item) {
      const int64_t matrix = item / blocks * rows * columns;
      const int64_t begin = item % blocks * block;
      TransposeMatrix(from + matrix + begin, columns, to + matrix + begin * rows, rows, rows,
                      std::min(block, columns - begin));
    });
  };
  if (element_bytes == 1) {
    transpose(static_cast<const uint8_t*>(source), static_cast<uint8_t*>(target));
  } else {
    transpose(static_cast<const int32_t*>(source), static_cast<int32_t*>(target));
  }
}

}  // namespace intact::onnxruntime
