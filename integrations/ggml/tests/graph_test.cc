// Graphs on a stock ggml: products of the backend against the reference, with ==. Weights are ggml's own decoding of random
// blocks; their integers are found by division by the scale of the group, so the test knows no place of a code in a block.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reference/contract/grouped.h"

namespace {

const char* version_of_ggml = nullptr;  // null: ggml's own

// Where a block has its scale, a half-float or for MXFP4 an exponent.
struct Type {
  ggml_type type;
  int64_t group;
  int scale_at;
  bool has_minimums = false;
  bool IsOfBlocks() const { return ggml_blck_size(type) == 256; }
};
const Type kTypes[] = {
    {GGML_TYPE_Q4_0, 32, 0},       {GGML_TYPE_Q4_1, 32, 0, true}, {GGML_TYPE_Q5_0, 32, 0},
    {GGML_TYPE_Q5_1, 32, 0, true}, {GGML_TYPE_Q8_0, 32, 0},       {GGML_TYPE_Q4_K, 32, 0, true},
    {GGML_TYPE_Q5_K, 32, 0, true}, {GGML_TYPE_Q6_K, 16, 208},     {GGML_TYPE_IQ4_NL, 32, 0},
    {GGML_TYPE_MXFP4, 32, 0},
};
const Type kQ8 = kTypes[4];

// Blocks with finite scales, as integers, scales and minimums that the reference takes.
struct Weights {
  std::vector<uint8_t> blocks;
  std::vector<int16_t> codes;
  std::vector<float> scales, minimums;  // of groups
};

float Half(const uint8_t* bytes) {
  uint16_t bits = 0;
  std::memcpy(&bits, bytes, 2);
  return ggml_fp16_to_fp32(bits);
}
void StoreHalf(float value, uint8_t* bytes) {
  const uint16_t bits = ggml_fp32_to_fp16(value);
  std::memcpy(bytes, &bits, 2);
}

// ggml's own values of a block.
std::vector<float> ValuesOf(const Type& type, const uint8_t* block) {
  std::vector<float> values(static_cast<size_t>(ggml_blck_size(type.type)));
  ggml_get_type_traits(type.type)->to_float(block, values.data(), ggml_blck_size(type.type));
  return values;
}

// The scale of a group, and its minimum. For blocks of blocks they are differences of ggml's values for codes of 0 and of 1.
float ScaleOf(const Type& type, const uint8_t* block, int64_t group, float* minimum) {
  if (type.type == GGML_TYPE_MXFP4) return std::ldexp(0.5f, block[type.scale_at] - 127);
  if (type.type == GGML_TYPE_Q6_K) return Half(block + 208) * static_cast<int8_t>(block[192 + group]);
  if (!type.IsOfBlocks()) {
    *minimum = type.has_minimums ? Half(block + 2) : 0;
    return Half(block);
  }
  std::vector<uint8_t> own(block, block + ggml_type_size(type.type));
  std::fill(own.begin() + 16, own.end(), uint8_t{0});  // codes
  *minimum = ValuesOf(type, own.data())[static_cast<size_t>(group * type.group)];
  StoreHalf(0, own.data() + 2);
  std::fill(own.end() - 128, own.end(), uint8_t{0x11});
  return ValuesOf(type, own.data())[static_cast<size_t>(group * type.group)];
}

Weights MakeWeights(const Type& type, int64_t count, std::mt19937* random) {
  Weights made;
  const int64_t depths = ggml_blck_size(type.type), blocks = count / depths;
  const size_t bytes = ggml_type_size(type.type);
  made.blocks.resize(static_cast<size_t>(blocks) * bytes);
  for (uint8_t& byte : made.blocks) byte = static_cast<uint8_t>((*random)());
  for (int64_t i = 0; i < blocks; ++i) {
    uint8_t* const block = &made.blocks[static_cast<size_t>(i) * bytes];
    const auto half = [&](int64_t seed) {
      return (seed % 2 == 0 ? 1.0f : -1.0f) *
             std::ldexp(1 + static_cast<float>(seed % 7) / 7, -static_cast<int>(seed % 9) - 3);
    };
    if (type.type == GGML_TYPE_MXFP4) {
      block[0] = static_cast<uint8_t>(i % 16 == 0 ? i / 16 % 3 : 110 + i % 20);  // also subnormal
    } else {
      StoreHalf(half(i), block + type.scale_at);
    }
    if (type.has_minimums) StoreHalf(half(3 * i + 1), block + 2);
    for (int g = 0; type.type == GGML_TYPE_Q6_K && g < 16; ++g) block[192 + g] |= 1;
    const std::vector<float> values = ValuesOf(type, block);
    float scale = 0, minimum = 0;
    for (int64_t k = 0; k < depths; ++k) {
      if (k % type.group == 0) {
        scale = ScaleOf(type, block, k / type.group, &minimum);
        made.scales.push_back(scale);
        if (type.has_minimums) made.minimums.push_back(minimum);
      }
      const float value = values[static_cast<size_t>(k)];
      const auto code = static_cast<int16_t>(scale == 0 ? 0 : std::lround((double{value} - minimum) / scale));
      EXPECT_EQ(scale * code + minimum, value);
      made.codes.push_back(code);
    }
  }
  return made;
}

template <class T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(values.data());
  return std::vector<uint8_t>(begin, begin + values.size() * sizeof(T));
}

std::vector<float> Reference(const Type& type, const Weights& weights, int64_t experts,
                             const std::vector<int64_t>& rows, int64_t n, int64_t k,
                             const std::vector<float>& x) {
  intact::reference::Grouped product;
  product.m = static_cast<int64_t>(x.size()) / k;
  product.n = n;
  product.k = k;
  product.experts = experts;
  product.expert_rows = rows;
  product.group = type.group;
  product.a_granularity = INTACT_GRANULARITY_GROUPS;
  product.b_type = INTACT_S8;
  product.scale_type = INTACT_F32;
  product.b = weights.codes;
  product.has_b_minimums = type.has_minimums;
  product.b_minimums = weights.minimums;
  product.b_scales = BytesOf(weights.scales);
  product.a_source = BytesOf(x);
  QuantizeActivations(&product);
  const std::vector<uint8_t> c = Outputs(product);
  std::vector<float> outputs(c.size() / sizeof(float));
  std::memcpy(outputs.data(), c.data(), c.size());
  return outputs;
}

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_backend_sched* scheduler) const { ggml_backend_sched_free(scheduler); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

Owned<ggml_context> NewContext() {
  return Owned<ggml_context>(ggml_init({16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true}));
}

ggml_backend_dev_t Device() { return ggml_backend_dev_by_name("INTACT"); }

// A tensor of packed weights, and a graph that a scheduler computes on intact's backend and the CPU's.
class Graph {
 public:
  explicit Graph(int threads)
      : intact_(ggml_backend_dev_init(Device(), nullptr)),
        cpu_(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr)) {
    auto* const set_threads =
        reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(Device()), "ggml_backend_set_n_threads"));
    set_threads(intact_.get(), threads);
  }

  ggml_tensor* AddWeights(const Type& type, const Weights& weights, int64_t n, int64_t k, int64_t experts,
                          size_t pieces = 1) {
    return AddWeights(type.type, weights.blocks, n, k, experts, pieces);
  }
  ggml_tensor* AddWeights(ggml_type type, const std::vector<uint8_t>& blocks, int64_t n, int64_t k,
                          int64_t experts, size_t pieces = 1) {
    ggml_tensor* const tensor = ggml_new_tensor_3d(weights_context_.get(), type, k, n, experts);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(weights_context_.get(),
                                                           ggml_backend_dev_buffer_type(Device())));
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    const size_t size = blocks.size();
    for (size_t i = 0; i < pieces; ++i) {
      const size_t begin = size * i / pieces, end = size * (i + 1) / pieces;
      ggml_backend_tensor_set(tensor, blocks.data() + begin, begin, end - begin);
    }
    return tensor;
  }
  ggml_context* context() { return context_.get(); }
  // Drops the graph, and keeps the weights.
  void Forget() {
    scheduler_.reset();
    context_ = NewContext();
  }

  // Computes `output` with these inputs.
  void Compute(const std::map<ggml_tensor*, const void*>& inputs, ggml_tensor* output,
               ggml_status status = GGML_STATUS_SUCCESS) {
    ggml_backend_t backends[] = {intact_.get(), cpu_.get()};
    scheduler_.reset(ggml_backend_sched_new(backends, nullptr, 2, 64, false, true));
    ggml_cgraph* const graph = ggml_new_graph(context_.get());
    ggml_set_output(output);
    ggml_build_forward_expand(graph, output);
    ASSERT_TRUE(ggml_backend_sched_alloc_graph(scheduler_.get(), graph));
    for (const auto& [tensor, data] : inputs) ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
    ASSERT_EQ(ggml_backend_sched_graph_compute(scheduler_.get(), graph), status);
  }
  std::string BackendOf(ggml_tensor* node) {
    return ggml_backend_name(ggml_backend_sched_get_tensor_backend(scheduler_.get(), node));
  }
  static std::vector<float> Values(ggml_tensor* tensor) {
    std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(float));
    return values;
  }

 private:
  Owned<ggml_backend> intact_, cpu_;
  Owned<ggml_context> weights_context_ = NewContext(), context_ = NewContext();
  Owned<ggml_backend_buffer> buffer_;
  Owned<ggml_backend_sched> scheduler_;
};

ggml_tensor* Input(ggml_context* context, ggml_type type, int64_t n0, int64_t n1, int64_t n2 = 1) {
  ggml_tensor* const tensor = ggml_new_tensor_3d(context, type, n0, n1, n2);
  ggml_set_input(tensor);
  return tensor;
}

std::vector<float> Numbers(int64_t count, std::mt19937* random) {
  std::vector<float> numbers(static_cast<size_t>(count));
  std::normal_distribution<float> normal;
  for (float& number : numbers) number = normal(*random);
  return numbers;
}

class OfType : public testing::TestWithParam<Type> {};

TEST_P(OfType, ProductsAreTheReferences) {
  std::mt19937 random(1);
  const int64_t k = 512;
  for (const int64_t n : {1, 33, 100}) {
    const Weights weights = MakeWeights(GetParam(), n * k, &random);
    for (const int64_t m : {1, 5, 40}) {
      const std::vector<float> x = Numbers(m * k, &random);
      Graph graph(1 + static_cast<int>(m % 2));
      ggml_tensor* const w = graph.AddWeights(GetParam(), weights, n, k, 1, m == 5 ? 3 : 1);
      ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, m);
      ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
      ggml_tensor* const twice = ggml_scale(graph.context(), product, 2.0f);  // on the CPU
      graph.Compute({{rows, x.data()}}, twice);
      EXPECT_EQ(graph.BackendOf(product), "INTACT");
      EXPECT_NE(graph.BackendOf(twice), "INTACT");
      std::vector<float> expected = Reference(GetParam(), weights, 1, {}, n, k, x);
      for (float& value : expected) value *= 2;
      EXPECT_EQ(Graph::Values(twice), expected) << m << "×" << n;
    }
  }
}

// Each token has two experts; a row of A is of a token, or of a token and a slot.
TEST_P(OfType, ExpertsMultiplyTheirRows) {
  std::mt19937 random(2);
  const int64_t k = 256, n = 40, experts = 5, slots = 2, tokens = 9;
  const Weights weights = MakeWeights(GetParam(), experts * n * k, &random);
  std::vector<int32_t> ids;
  for (int32_t token = 0; token < tokens; ++token) {
    ids.push_back(token * 7 % 4);  // expert 4 has rows of the second slot only
    ids.push_back(token % 3 == 0 ? 4 : (ids.back() + 1) % 4);
  }
  for (const int64_t rows_of_token : {int64_t{1}, slots}) {
    const std::vector<float> x = Numbers(tokens * rows_of_token * k, &random);
    Graph graph(2);
    ggml_tensor* const w = graph.AddWeights(GetParam(), weights, n, k, experts);
    ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, rows_of_token, tokens);
    ggml_tensor* const choice = Input(graph.context(), GGML_TYPE_I32, slots, tokens);
    ggml_tensor* const product = ggml_mul_mat_id(graph.context(), w, rows, choice);
    graph.Compute({{rows, x.data()}, {choice, ids.data()}}, product);
    EXPECT_EQ(graph.BackendOf(product), "INTACT");
    const std::vector<float> outputs = Graph::Values(product);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row =
          static_cast<int64_t>(i) / slots * rows_of_token + static_cast<int64_t>(i) % rows_of_token;
      std::vector<int64_t> counts(experts);
      counts[static_cast<size_t>(ids[i])] = 1;
      const std::vector<float> own(x.begin() + row * k, x.begin() + (row + 1) * k);
      const auto begin = outputs.begin() + static_cast<int64_t>(i) * n;
      EXPECT_EQ(std::vector<float>(begin, begin + n),
                Reference(GetParam(), weights, experts, counts, n, k, own));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ggml, OfType, testing::ValuesIn(kTypes),
                         [](const auto& test) { return ggml_type_name(test.param.type); });

TEST(Backend, ReadsRowsWithAStride) {
  std::mt19937 random(3);
  const int64_t k = 64, n = 32, m = 3;
  const Weights weights = MakeWeights(kQ8, n * k, &random);
  const std::vector<float> x = Numbers(m * 2 * k, &random);
  Graph graph(1);
  ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, 1);
  ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, 2 * k, m);
  ggml_tensor* const half = ggml_view_2d(graph.context(), rows, k, m, rows->nb[1], k * sizeof(float));
  ggml_tensor* const product = ggml_mul_mat(graph.context(), w, half);
  graph.Compute({{rows, x.data()}}, product);
  EXPECT_EQ(graph.BackendOf(product), "INTACT");
  std::vector<float> own;
  for (int64_t row = 0; row < m; ++row)
    own.insert(own.end(), x.begin() + (2 * row + 1) * k, x.begin() + (2 * row + 2) * k);
  EXPECT_EQ(Graph::Values(product), Reference(kQ8, weights, 1, {}, n, k, own));
}

// Rows of a tensor with two orders of its dimensions, and of types that ggml's CPU backend does not take.
class RowsOf : public testing::TestWithParam<ggml_type> {};

TEST_P(RowsOf, AnyStridesAreTaken) {
  std::mt19937 random(4);
  const int64_t k = 64, n = 32, counts[] = {4, 2, 3};
  const Weights weights = MakeWeights(kQ8, n * k, &random);
  std::vector<float> x = Numbers(4 * 2 * 3 * k, &random);
  std::vector<ggml_fp16_t> halves(x.size());
  ggml_fp32_to_fp16_row(x.data(), halves.data(), static_cast<int64_t>(x.size()));
  const bool is_half = GetParam() == GGML_TYPE_F16;
  if (is_half) ggml_fp16_to_fp32_row(halves.data(), x.data(), static_cast<int64_t>(x.size()));
  for (const bool is_permuted : {false, true}) {
    Graph graph(2);
    ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, 1);
    ggml_tensor* const rows = ggml_new_tensor_4d(graph.context(), GetParam(), k, 4, 2, 3);
    ggml_set_input(rows);
    ggml_tensor* const taken = is_permuted ? ggml_permute(graph.context(), rows, 0, 3, 1, 2) : rows;
    ggml_tensor* const product = ggml_mul_mat(graph.context(), w, taken);
    graph.Compute({{rows, is_half ? static_cast<const void*>(halves.data()) : x.data()}}, product);
    EXPECT_EQ(graph.BackendOf(product), "INTACT");
    std::vector<float> own = x;
    for (int64_t i = 0; is_permuted && i < 4 * 2 * 3; ++i) {
      const int64_t i0 = i % counts[0], i1 = i / counts[0] % counts[1], i2 = i / counts[0] / counts[1];
      std::copy_n(x.begin() + i * k, k, own.begin() + ((i0 * 3 + i2) * 2 + i1) * k);
    }
    EXPECT_EQ(Graph::Values(product), Reference(kQ8, weights, 1, {}, n, k, own)) << is_permuted;
  }
}

INSTANTIATE_TEST_SUITE_P(Ggml, RowsOf, testing::Values(GGML_TYPE_F32, GGML_TYPE_F16),
                         [](const auto& test) { return ggml_type_name(test.param); });

// A is stored column by column.
TEST(Backend, ReadsTransposedRows) {
  std::mt19937 random(5);
  const int64_t k = 64, n = 32, m = 3;
  const Weights weights = MakeWeights(kQ8, n * k, &random);
  const std::vector<float> x = Numbers(m * k, &random);
  Graph graph(1);
  ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, 1);
  ggml_tensor* const columns = Input(graph.context(), GGML_TYPE_F32, m, k);
  ggml_tensor* rows = ggml_new_tensor_2d(graph.context(), GGML_TYPE_F32, k, m);
  ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
  product->src[1] = ggml_transpose(graph.context(), columns);  // which ggml_mul_mat() itself refuses
  graph.Compute({{columns, x.data()}}, product);
  EXPECT_EQ(graph.BackendOf(product), "INTACT");
  std::vector<float> own(x.size());
  for (int64_t i = 0; i < m * k; ++i) own[static_cast<size_t>(i % m * k + i / m)] = x[static_cast<size_t>(i)];
  EXPECT_EQ(Graph::Values(product), Reference(kQ8, weights, 1, {}, n, k, own));
}

// Each of the matrices multiplies two matrices of rows.
TEST(Backend, MultipliesByOneMatrixAfterTheOther) {
  std::mt19937 random(6);
  const int64_t k = 64, n = 32, m = 3, matrices = 2;
  const Weights weights = MakeWeights(kQ8, matrices * n * k, &random);
  const std::vector<float> x = Numbers(2 * matrices * m * k, &random);
  Graph graph(2);
  ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, matrices);
  ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, m, 2 * matrices);
  ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
  graph.Compute({{rows, x.data()}}, product);
  EXPECT_EQ(graph.BackendOf(product), "INTACT");
  EXPECT_EQ(Graph::Values(product), Reference(kQ8, weights, matrices, {2 * m, 2 * m}, n, k, x));
}

TEST(Backend, ComputesNothingForExpertsThatDoNotExist) {
  std::mt19937 random(10);
  const int64_t k = 64, n = 32, experts = 2;
  const Weights weights = MakeWeights(kQ8, experts * n * k, &random);
  const std::vector<float> x = Numbers(k, &random);
  for (const int32_t id : {-1, 2}) {
    Graph graph(1);
    ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, experts);
    ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, 1, 1);
    ggml_tensor* const choice = Input(graph.context(), GGML_TYPE_I32, 1, 1);
    ggml_tensor* const product = ggml_mul_mat_id(graph.context(), w, rows, choice);
    testing::internal::CaptureStderr();
    graph.Compute({{rows, x.data()}, {choice, &id}}, product, GGML_STATUS_FAILED);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("names an expert that does not exist\n"),
              std::string::npos);
  }
}

// What ggml's CPU backend computes with weights in its own memory.
std::vector<float> OfCpu(ggml_type type, const std::vector<uint8_t>& weights, int64_t n, int64_t k, int64_t m,
                         const std::vector<float>& x) {
  Graph graph(1);
  ggml_tensor* const w = Input(graph.context(), type, k, n);
  ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, m);
  ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
  graph.Compute({{w, weights.data()}, {rows, x.data()}}, product);
  EXPECT_NE(graph.BackendOf(product), "INTACT");
  return Graph::Values(product);
}

// A program may place any tensor in the buffer of the weights. llama.cpp places LoRA adapters there.
TEST(Backend, KeepsTensorsThatItCannotPack) {
  std::mt19937 random(7);
  const int64_t k = 64, n = 32, m = 3;
  const std::vector<float> x = Numbers(m * k, &random), floats = Numbers(n * k, &random);
  std::vector<ggml_fp16_t> halves(floats.size());
  ggml_fp32_to_fp16_row(floats.data(), halves.data(), n * k);
  std::vector<uint8_t> damaged = MakeWeights(kQ8, n * k, &random).blocks;
  StoreHalf(INFINITY, damaged.data());
  const std::pair<ggml_type, std::vector<uint8_t>> tensors[] = {
      {GGML_TYPE_F32, BytesOf(floats)}, {GGML_TYPE_F16, BytesOf(halves)}, {GGML_TYPE_Q8_0, damaged}};
  for (const auto& [type, bytes] : tensors)
    for (const size_t pieces : {1, 3}) {
      Graph graph(1);
      testing::internal::CaptureStderr();
      ggml_tensor* const w = graph.AddWeights(type, bytes, n, k, 1, pieces);
      const std::string lines = testing::internal::GetCapturedStderr();
      EXPECT_EQ(lines.find("ggml's CPU backend computes with it") != std::string::npos,
                type == GGML_TYPE_Q8_0);
      EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), type == GGML_TYPE_Q8_0 ? 1 : 0) << lines;
      ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, m);
      ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
      graph.Compute({{rows, x.data()}}, product);
      EXPECT_NE(graph.BackendOf(product), "INTACT");
      EXPECT_EQ(BytesOf(Graph::Values(product)), BytesOf(OfCpu(type, bytes, n, k, m, x)))
          << ggml_type_name(type);
    }
}

// Parts of weights: they must follow each other from the first byte on.
TEST(Backend, ComputesNothingWithWeightsThatAreNotSet) {
  std::mt19937 random(8);
  const int64_t k = 64, n = 32, m = 3;
  const Weights weights = MakeWeights(kQ8, n * k, &random);
  const std::vector<float> x = Numbers(m * k, &random);
  const auto compute = [&](const std::vector<size_t>& halves, bool is_cleared, ggml_status status) {
    Graph graph(1);
    ggml_tensor* const w = graph.AddWeights(kQ8, weights, n, k, 1, 0);
    const size_t bytes = weights.blocks.size() / 2;
    for (const size_t half : halves)
      ggml_backend_tensor_set(w, weights.blocks.data() + half * bytes, half * bytes, bytes);
    if (is_cleared) ggml_backend_buffer_clear(w->buffer, 0);
    ggml_tensor* const rows = Input(graph.context(), GGML_TYPE_F32, k, m);
    ggml_tensor* const product = ggml_mul_mat(graph.context(), w, rows);
    testing::internal::CaptureStderr();
    graph.Compute({{rows, x.data()}}, product, status);
    EXPECT_EQ(testing::internal::GetCapturedStderr().find("are not set") != std::string::npos,
              status != GGML_STATUS_SUCCESS);
    if (status != GGML_STATUS_SUCCESS) return;
    EXPECT_EQ(Graph::Values(product), Reference(kQ8, weights, 1, {}, n, k, x));
  };
  for (const std::vector<size_t>& halves : {std::vector<size_t>{}, {0}, {1}, {0, 0}, {1, 0}, {0, 1, 1}})
    compute(halves, false, GGML_STATUS_FAILED);
  for (const std::vector<size_t>& halves : {std::vector<size_t>{0, 1}, {1, 0, 1}, {0, 1, 0, 1}})
    compute(halves, false, GGML_STATUS_SUCCESS);
  compute({0, 1}, true, GGML_STATUS_FAILED);
}

// Bytes of memory that the process occupies.
size_t Resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

// Each prompt has its own graph, and each sixteenth new weights.
TEST(Backend, MultipliesAThousandPromptsOfRandomLength) {
  std::mt19937 random(9);
  const int64_t k = 256, n = 96, most = 200;
  const Weights weights = MakeWeights(kQ8, n * k, &random);
  const std::vector<float> x = Numbers(most * k, &random);
  const std::vector<float> expected = Reference(kQ8, weights, 1, {}, n, k, x);
  size_t before = 0;
  std::unique_ptr<Graph> graph;
  ggml_tensor* w = nullptr;
  for (int prompt = 0; prompt < 1000; ++prompt) {
    if (prompt % 16 == 0) {
      graph = std::make_unique<Graph>(1);
      w = graph->AddWeights(kQ8, weights, n, k, 1);
    } else {
      graph->Forget();
    }
    const int64_t m = 1 + static_cast<int64_t>(random() % 64),
                  first = static_cast<int64_t>(random() % (most - m));
    ggml_tensor* const rows = Input(graph->context(), GGML_TYPE_F32, k, m);
    ggml_tensor* const product = ggml_mul_mat(graph->context(), w, rows);
    graph->Compute({{rows, x.data() + first * k}}, product);
    const std::vector<float> own(expected.begin() + first * n, expected.begin() + (first + m) * n);
    ASSERT_EQ(Graph::Values(product), own)
        << "prompt " << prompt << ", rows " << first << " to " << first + m;
    if (prompt == 200) before = Resident();
  }
  EXPECT_LT(Resident(), before + (4 << 20));
}

TEST(Backend, IsAnAccelerator) {
  ASSERT_NE(Device(), nullptr);
  EXPECT_EQ(ggml_backend_dev_type(Device()), GGML_BACKEND_DEVICE_TYPE_ACCEL);
  EXPECT_FALSE(ggml_backend_buft_is_host(ggml_backend_dev_buffer_type(Device())));
}

TEST(Backend, LeavesOtherTypesAndOperationsToTheCpu) {
  const Owned<ggml_context> context = NewContext();
  Owned<ggml_backend_buffer> buffer(
      ggml_backend_buft_alloc_buffer(ggml_backend_dev_buffer_type(Device()), 0));
  const auto takes = [&](ggml_type type, bool is_row) {
    ggml_tensor* const weights = ggml_new_tensor_2d(context.get(), type, 256, 4);
    weights->buffer = buffer.get();
    ggml_tensor* const rows = ggml_new_tensor_1d(context.get(), is_row ? GGML_TYPE_I32 : GGML_TYPE_F32, 256);
    return ggml_backend_dev_supports_op(Device(), is_row ? ggml_get_rows(context.get(), weights, rows)
                                                         : ggml_mul_mat(context.get(), weights, rows));
  };
  EXPECT_TRUE(takes(GGML_TYPE_Q8_0, false));
  EXPECT_FALSE(takes(GGML_TYPE_Q8_0, true));
  EXPECT_FALSE(takes(GGML_TYPE_F16, false));
}

std::string MinorOfHeaders() {
  const std::string version = INTACT_GGML_VERSION;
  return version.substr(0, version.rfind('.'));
}

TEST(Backend, RefusesAnotherVersionInOneLine) {
  version_of_ggml = "0.1.2";
  testing::internal::CaptureStderr();
  EXPECT_EQ(ggml_backend_load(std::getenv("GGML_BACKEND_PATH")), nullptr);
  const std::string lines = testing::internal::GetCapturedStderr();
  version_of_ggml = nullptr;
  EXPECT_NE(lines.find("intact: this is ggml 0.1.2; expected ggml " + MinorOfHeaders() +
                       ".x (interface of backends 3)"),
            std::string::npos)
      << lines;
}

}  // namespace

// Found before ggml's own.
extern "C" __attribute__((visibility("default"))) const char* ggml_version() {
  return version_of_ggml == nullptr ? INTACT_GGML_VERSION : version_of_ggml;
}

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  ggml_backend_load_all();  // also GGML_BACKEND_PATH
  return RUN_ALL_TESTS();
}
