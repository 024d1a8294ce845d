// What calls have beyond those of the ABI's first version: activations that runs quantize or have values for,
// outputs of half floats, and of GEMMs batches and B given by runs.
#ifndef INTACT_FUZZ_FEATURES_H_
#define INTACT_FUZZ_FEATURES_H_

#include <intact/intact.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/items.h"
#include "reference/contract/conv.h"
#include "reference/contract/gemm.h"
#include "verify/problem/target.h"

namespace intact::fuzz {

/// The byte that a call begins with: 0, and the call has none of them.
///
///   | transposed A | TENSOR | half float output | own B | batch | quantization (2 bits) |
struct Features {
  explicit Features(uint8_t byte);
  /// Those that convolutions have: TENSOR in place of what is by rows.
  Features OfConv() const;
  bool Any() const;
  /// The types that an output may have.
  std::span<const int32_t> OutputTypes() const;

  intact_quantization quantization;
  bool has_batch, has_runtime_b, is_half, is_transposed;
};

/// The fields that features set in descriptors already read, now and then wrong.
void ReadFeatures(Input* input, const Features& features, intact_gemm_desc* desc, intact_linear_desc* linear);
void ReadFeatures(Input* input, const Features& features, intact_linear_desc* linear);

/// The input of a run of `*conv`, which has all but tensors and values of A; `linear` is its descriptor.
void ReadInput(Input* input, const intact_linear_desc& linear, reference::Conv* conv);
/// Makes one of these values wrong.
struct WrongTensorValue {
  int32_t zero_point = 0;
  float scale = 1.0f;
  void Give(Input* input, const reference::Conv& conv, intact_conv_args* args);
};

/// The tensors of a run and what else it is given of its features.
class FeatureRun {
 public:
  /// `*gemm` has all but m and tensors, but for a B that is the plan's; `linear` is its descriptor, and `b`
  /// where B's elements are.
  FeatureRun(Input* input, const intact_linear_desc& linear, const Layout& b, reference::Gemm* gemm)
      : input_(*input), linear_(linear), b_(b), gemm_(*gemm) {}

  /// Fills m, the batch, A, the values of rows and of items, and B if runs give it. "", or what is wrong.
  std::string Read(const Features& features);
  /// How A and the batch lie in memory.
  void ReadOptions(const Features& features, verify::RunOptions* options);
  /// Gives what RunGuarded() does not, or gives otherwise.
  void Amend(intact_gemm_args* args);
  /// Makes one argument of features wrong; or none, and false.
  bool Spoil(intact_gemm_args* args);

 private:
  std::vector<uint8_t> ReadActivations(int64_t count);
  void ReadRowValues();
  void ReadItemValues();
  std::string ReadA(bool has_batch);
  std::string ReadB();
  int64_t ReadCount();
  bool SpoilItems(intact_gemm_args* args);
  bool SpoilStride(intact_gemm_args* args);
  bool SpoilResidual(intact_gemm_args* args);
  bool SpoilRows(intact_gemm_args* args);
  bool SpoilB(intact_gemm_args* args);

  Input& input_;
  const intact_linear_desc& linear_;
  Layout b_;
  reference::Gemm& gemm_;
  std::optional<Items> a_items_, b_items_;  // where they are not RunGuarded()'s
  int64_t a_stride_ = 0;                    // of those
  bool is_transposed_ = false;
  // What spoilt arguments point to.
  std::vector<const void*> pointers_;
  std::vector<int32_t> zero_points_;
  std::vector<float> scales_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_FEATURES_H_
