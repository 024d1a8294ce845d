// Features of calls that the ABI's first version does not have: activations that runs quantize, or whose zero
// points and scales runs give; outputs of half floats; for GEMMs also batches, runtime B and transposed A.
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

/// The first byte of a call. 0: no features.
///
///   | transposed A | TENSOR | half float output | runtime B | batch | quantization (2 bits) |
struct Features {
  explicit Features(uint8_t byte);
  /// The features that convolutions have. TENSOR replaces quantizations by rows.
  Features OfConv() const;
  bool Any() const;
  /// The types that an output may have.
  std::span<const int32_t> OutputTypes() const;

  intact_quantization quantization;
  bool has_batch, has_runtime_b, is_half, is_transposed;
};

/// Sets the fields of `features` in descriptors already read. Now and then a value is wrong.
void ReadFeatures(Input* input, const Features& features, intact_gemm_desc* desc, intact_linear_desc* linear);
void ReadFeatures(Input* input, const Features& features, intact_linear_desc* linear);

/// Reads A of `*conv` and the values that a run gives for it; all else is set. `linear` is its descriptor.
void ReadInput(Input* input, const intact_linear_desc& linear, reference::Conv* conv);
/// A wrong value for A in a run.
struct WrongTensorValue {
  int32_t zero_point = 0;
  float scale = 1.0f;
  void Give(Input* input, const reference::Conv& conv, intact_conv_args* args);
};

/// The tensors of a run, and the arguments of its features.
class FeatureRun {
 public:
  /// In `*gemm` all is set except m and tensors; B is set too unless it is a runtime B. `linear` is its
  /// descriptor, and `b` is the layout of B's elements.
  FeatureRun(Input* input, const intact_linear_desc& linear, const Layout& b, reference::Gemm* gemm)
      : input_(*input), linear_(linear), b_(b), gemm_(*gemm) {}

  /// Fills m, the batch, A, the values of rows and of items, and runtime B. "", or what is wrong.
  std::string Read(const Features& features);
  /// Reads the memory layout of A and of the batch.
  void ReadOptions(const Features& features, verify::RunOptions* options);
  /// Sets the arguments that RunGuarded() does not set or must not choose.
  void Amend(intact_gemm_args* args);
  /// Makes one argument of a feature wrong. False if it changed no argument.
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
  std::optional<Items> a_items_, b_items_;  // unless RunGuarded() makes them
  int64_t a_stride_ = 0;                    // the argument a_stride for a_items_
  bool is_transposed_ = false;
  // Arrays that spoilt arguments point to.
  std::vector<const void*> pointers_;
  std::vector<int32_t> zero_points_;
  std::vector<float> scales_;
};

}  // namespace intact::fuzz
#endif  // INTACT_FUZZ_FEATURES_H_
