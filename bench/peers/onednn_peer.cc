#include "bench/peers/onednn_peer.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bench/cases/workload.h"
#include "bench/peers/engine_passes.h"
#include "core/isas.h"
#include "peers/onednn_api.h"
#include "reference/models/operands.h"

namespace intact::bench {
namespace {

using onednn::Attributes;
using onednn::ColumnMasks;
using onednn::Descriptor;
using onednn::Dimensions;
using onednn::Layout;
using onednn::Type;

dnnl::cpu_isa CapOf(core::Isa isa) {
  switch (isa) {
    case core::Isa::kPortable:  // oneDNN has no lower ISA to choose
      return dnnl::cpu_isa::sse41;
    case core::Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case core::Isa::kAvxVnni:
      return dnnl::cpu_isa::avx2_vnni;
    case core::Isa::kAvxVnniInt8:
      return onednn::kAvxVnniInt8Isa;
    case core::Isa::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case core::Isa::kAvx512Vnni:
      return dnnl::cpu_isa::avx512_core_vnni;
    case core::Isa::kAmxInt8:
      return dnnl::cpu_isa::avx512_core_amx;
    default:  // ISAs that oneDNN 2 does not know
      return onednn::kAnyIsa;
  }
}

/// An output's type.
Type TypeOf(intact_type c_type) {
  if (c_type == INTACT_F32) return Type::f32;
  return c_type == INTACT_S32 ? Type::s32 : Type::u8;
}

Type ActivationTypeOf(const Case& c) {
  return c.format.quantization == Quantization::kNone ? Type::f32 : Type::u8;
}

Type WeightTypeOf(const Case& c) {
  if (c.format.quantization == Quantization::kNone) return Type::f32;
  return c.shape.batch && c.shape.batch->b_type == INTACT_U8 ? Type::u8 : Type::s8;
}

/// A primitive. Weights are packed when it is made, in the format that oneDNN prefers. Only a batch is not
/// packed: each run reads its Bs as they are in memory.
class OneDnnContender final : public Contender {
 public:
  // Throws dnnl::error.
  OneDnnContender(const Workload& workload, const Case& c)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    if (c.shape.conv && c.shape.conv->transposed) {
      SetConvolution<dnnl::deconvolution_forward>(dnnl::algorithm::deconvolution_direct, workload, c);
    } else if (c.shape.conv) {
      SetConvolution<dnnl::convolution_forward>(dnnl::algorithm::convolution_direct, workload, c);
    } else {
      SetMatmul(workload, c);
    }
  }

  std::string Implementation() const override { return implementation_; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    try {
      if (a_.get_data_handle() != a) a_.set_data_handle(const_cast<uint8_t*>(a));  // read only
      if (c_.get_data_handle() != c) c_.set_data_handle(c);
      primitive_.execute(stream_, arguments_);
      stream_.wait();
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

 private:
  /// Matrices of a GEMM have two dimensions, matrices of a batch three.
  void SetMatmul(const Workload& workload, const Case& c) {
    const std::optional<Batch>& batch = c.shape.batch;
    const auto dimensions = [&](int64_t rows, int64_t columns) -> Dimensions {
      return batch ? Dimensions{batch->items, rows, columns} : Dimensions{rows, columns};
    };
    const Layout dense = batch ? Layout::abc : Layout::ab;
    const Layout dense_b = batch && batch->b_by_columns ? Layout::acb : dense;
    const Dimensions size = dimensions(c.shape.k, c.shape.n);
    const Descriptor plain(size, WeightTypeOf(c), dense_b);
    const Descriptor a(dimensions(c.shape.m, c.shape.k), ActivationTypeOf(c), dense);
    const Descriptor b = batch ? plain : Descriptor(size, WeightTypeOf(c), Layout::any);
    const Descriptor to(dimensions(c.shape.m, c.shape.n), TypeOf(c.format.c_type), dense);
    const Attributes attributes = AttributesOf(workload, c, onednn::MatmulColumns(size.size()));
    const auto description = onednn::Describe<dnnl::matmul>(engine_, attributes.attributes, a, b, to);
    primitive_ = dnnl::matmul(description);
    Finish(description, plain, workload, c, attributes);
  }

  /// Makes a convolution; channels last.
  template <class Primitive>
  void SetConvolution(dnnl::algorithm algorithm, const Workload& workload, const Case& c) {
    const Geometry& g = *c.shape.conv;
    const auto both = [](const Extents& extents) { return Dimensions{extents.height, extents.width}; };
    Dimensions filter = {g.c_out / g.groups, g.Channels(), g.kernel.height, g.kernel.width};
    if (g.groups != 1) filter.insert(filter.begin(), g.groups);
    const Descriptor a({g.batch, g.c_in, g.height, g.width}, ActivationTypeOf(c), Layout::nhwc);
    const Descriptor b(filter, WeightTypeOf(c), Layout::any);
    const Descriptor to({g.batch, g.c_out, g.OutHeight(), g.OutWidth()}, TypeOf(c.format.c_type),
                        Layout::nhwc);
    const Attributes attributes = AttributesOf(workload, c, onednn::ConvolutionColumns(g.groups != 1));
    const auto description = onednn::Describe<Primitive>(
        engine_, attributes.attributes, dnnl::prop_kind::forward_inference, algorithm, a, b, to,
        both(g.stride), both(g.dilation - 1), both(g.PadBegin()), both(g.PadEnd()));
    primitive_ = Primitive(description);
    const Descriptor plain(filter, WeightTypeOf(c), g.groups != 1 ? Layout::gohwi : Layout::ohwi);
    Finish(description, plain, workload, c, attributes);
  }

  /// Packs the weights and gathers the arguments. `plain`: type and layout of the weights.
  template <class Description>
  void Finish(const Description& description, const Descriptor& plain, const Workload& workload,
              const Case& c, const Attributes& attributes) {
    dnnl::memory b(plain, engine_);
    const std::span<const int8_t> weights = workload.b();
    if (WeightTypeOf(c) == Type::f32) {
      std::ranges::copy(weights, static_cast<float*>(b.get_data_handle()));
    } else {
      std::ranges::copy(weights, static_cast<int8_t*>(b.get_data_handle()));
    }
    implementation_ = description.impl_info_str();
    if (!c.shape.batch) {
      if (description.weights_desc() == plain) implementation_ += ", weights not packed";
      dnnl::memory packed(description.weights_desc(), engine_);
      dnnl::reorder(b, packed).execute(stream_, b, packed);
      stream_.wait();
      b = packed;
    }
    a_ = dnnl::memory(description.src_desc(), engine_, nullptr);
    c_ = dnnl::memory(description.dst_desc(), engine_, nullptr);
    arguments_ = attributes.arguments;
    arguments_.insert({{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c_}});
  }

  Attributes AttributesOf(const Workload& workload, const Case& c, ColumnMasks columns) const {
    Attributes result;
    if (c.format.c_type != INTACT_S32 && c.format.quantization != Quantization::kNone) {
      onednn::SetScales(engine_, workload.operation().scales, columns, &result);
    }
    if (workload.PostOpsOf(c.format).Has<core::Relu>()) {
      dnnl::post_ops relu;
      onednn::AppendEltwise(dnnl::algorithm::eltwise_relu, 0.0f, 0.0f, &relu);
      result.attributes.set_post_ops(relu);
    }
    return result;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::string implementation_;
  dnnl::memory a_, c_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

/// A matmul to s32 between passes that quantize and scale. oneDNN's matmul has no zero points or scales of
/// rows. It has zero points and scales of a tensor that runs give, but then takes weights that are not
/// packed.
class OneDnnBetweenPasses final : public Contender {
 public:
  OneDnnBetweenPasses(const Workload& workload, const Case& c)
      : product_(workload, Static(c)),
        passes_(c.isa, c.shape.m, c.shape.k, c.format.quantization == Quantization::kRow,
                reference::Operands(workload.gemm()).column_sums, workload.operation().scales),
        quantized_(static_cast<size_t>(c.shape.m * c.shape.k)) {}

  std::string Implementation() const override { return product_.Implementation() + ", between passes"; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    passes_.Quantize(reinterpret_cast<const float*>(a), quantized_.data());
    if (!product_.Run(quantized_.data(), c)) return false;
    passes_.Dequantize(reinterpret_cast<int32_t*>(c));
    return true;
  }

 private:
  static Case Static(Case c) {
    c.format = kS32;
    return c;
  }

  OneDnnContender product_;
  EnginePasses passes_;
  std::vector<uint8_t> quantized_;
};

class OneDnnPeer final : public Peer {
 public:
  std::string Name() const override { return "onednn"; }

  std::string Version() const override {
    const dnnl_version_t* const version = dnnl_version();
    return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  }

  std::optional<Error> Confine(core::Isa isa) const override {
    omp_set_num_threads(1);
    if (dnnl::set_max_cpu_isa(CapOf(isa)) == dnnl::status::success) return std::nullopt;
    return Error{INTACT_UNSUPPORTED, fmt::format("oneDNN refuses to be confined to {}", core::ToString(isa))};
  }

  Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const override {
    try {
      if (IsDynamic(c.format.quantization)) {
        return std::unique_ptr<Contender>(std::make_unique<OneDnnBetweenPasses>(workload, c));
      }
      return std::unique_ptr<Contender>(std::make_unique<OneDnnContender>(workload, c));
    } catch (const dnnl::error& error) {
      return Error{INTACT_UNSUPPORTED, fmt::format("oneDNN: {}", error.what())};
    }
  }
};

}  // namespace

const Peer& OneDnn() {
  static const OneDnnPeer kPeer;
  return kPeer;
}

}  // namespace intact::bench
