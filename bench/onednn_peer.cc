#include "bench/onednn_peer.h"

#include <fmt/format.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/workload.h"

namespace intact::bench {
namespace {

using Descriptor = dnnl::memory::desc;
using Dimensions = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
using Layout = dnnl::memory::format_tag;

dnnl::cpu_isa CapOf(jit::Isa isa) {
  switch (isa) {
    case jit::Isa::kPortable:  // the least that it tells apart
      return dnnl::cpu_isa::sse41;
    case jit::Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case jit::Isa::kAvxVnni:
    case jit::Isa::kAvxVnniInt8:  // which oneDNN 2 does not know
      return dnnl::cpu_isa::avx2_vnni;
    case jit::Isa::kAvx512:
      return dnnl::cpu_isa::avx512_core;
    case jit::Isa::kAvx512Vnni:
      return dnnl::cpu_isa::avx512_core_vnni;
    case jit::Isa::kAmxInt8:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  return dnnl::cpu_isa::all;
}

/// An output's type.
Type TypeOf(intact_type c_type) {
  if (c_type == INTACT_F32) return Type::f32;
  return c_type == INTACT_S32 ? Type::s32 : Type::u8;
}

/// A primitive whose weights are packed, in whatever format it prefers, when it is made.
class OneDnnContender final : public Contender {
 public:
  // Of int8, or of floats for c_type f32. Throws dnnl::error.
  OneDnnContender(const Workload& workload, const Case& c)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    if (c.shape.conv && c.shape.conv->transposed) {
      SetConvolution<dnnl::deconvolution_forward>(dnnl::algorithm::deconvolution_direct, workload.conv(),
                                                  *c.shape.conv, c.c_type);
    } else if (c.shape.conv) {
      SetConvolution<dnnl::convolution_forward>(dnnl::algorithm::convolution_direct, workload.conv(),
                                                *c.shape.conv, c.c_type);
    } else {
      SetMatmul(workload.gemm(), c.c_type);
    }
  }

  std::string Implementation() const override { return implementation_; }

  bool Run(const uint8_t* a, uint8_t* c) override {
    try {
      if (a_.get_data_handle() != a) a_.set_data_handle(const_cast<uint8_t*>(a), stream_);  // read only
      if (c_.get_data_handle() != c) c_.set_data_handle(c, stream_);
      primitive_.execute(stream_, arguments_);
      stream_.wait();
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

 private:
  void SetMatmul(const reference::Gemm& gemm, intact_type c_type) {
    const bool is_float = c_type == INTACT_F32;
    const Type type = is_float ? Type::f32 : Type::s8;
    const Descriptor a({gemm.m, gemm.k}, is_float ? Type::f32 : Type::u8, Layout::ab);
    const Descriptor b({gemm.k, gemm.n}, type, Layout::any);
    const Descriptor c({gemm.m, gemm.n}, TypeOf(c_type), Layout::ab);
    const dnnl::matmul::primitive_desc description({a, b, c}, Attributes(gemm, c_type), engine_);
    primitive_ = dnnl::matmul(description);
    Finish(description, {{gemm.k, gemm.n}, type, Layout::ab}, gemm.b);
  }

  /// Makes a convolution; channels last.
  template <class Primitive>
  void SetConvolution(dnnl::algorithm algorithm, const reference::Conv& conv, const Geometry& g,
                      intact_type c_type) {
    const bool is_float = c_type == INTACT_F32;
    const Type type = is_float ? Type::f32 : Type::s8;
    const auto both = [](const Extents& extents) { return Dimensions{extents.height, extents.width}; };
    Dimensions filter = {g.c_out / g.groups, g.Channels(), g.kernel.height, g.kernel.width};
    if (g.groups != 1) filter.insert(filter.begin(), g.groups);
    const Descriptor a({g.batch, g.c_in, g.height, g.width}, is_float ? Type::f32 : Type::u8, Layout::nhwc);
    const Descriptor b(filter, type, Layout::any);
    const Descriptor c({g.batch, g.c_out, g.OutHeight(), g.OutWidth()}, TypeOf(c_type), Layout::nhwc);
    const typename Primitive::primitive_desc description(
        {dnnl::prop_kind::forward_inference, algorithm, a, b, c, both(g.stride), both(g.dilation - 1),
         both(g.PadBegin()), both(g.PadEnd())},
        Attributes(conv, c_type), engine_);
    primitive_ = Primitive(description);
    const Descriptor plain(filter, type, g.groups != 1 ? Layout::gohwi : Layout::ohwi);
    Finish(description, plain, conv.b);
  }

  /// Packs `weights`, which are laid out as `plain` says, in its type, and gathers the arguments.
  template <class Description>
  void Finish(const Description& description, const Descriptor& plain, const std::vector<int8_t>& weights) {
    const std::vector<float> floats(weights.begin(), weights.end());
    const bool is_float = plain.data_type() == Type::f32;
    const void* const data =
        is_float ? static_cast<const void*>(floats.data()) : static_cast<const void*>(weights.data());
    dnnl::memory source(plain, engine_, const_cast<void*>(data));  // read only
    dnnl::memory packed(description.weights_desc(), engine_);
    dnnl::reorder(source, packed).execute(stream_, source, packed);
    stream_.wait();
    implementation_ = description.impl_info_str();
    if (description.weights_desc() == plain) implementation_ += ", weights not packed";
    a_ = dnnl::memory(description.src_desc(), engine_, nullptr);
    c_ = dnnl::memory(description.dst_desc(), engine_, nullptr);
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, c_}};
  }

  static dnnl::primitive_attr Attributes(const reference::Operation& operation, intact_type c_type) {
    dnnl::primitive_attr attributes;
    if (c_type == INTACT_S32) return attributes;
    constexpr int kPerColumn = 1 << 1;
    if (c_type == INTACT_U8) attributes.set_output_scales(kPerColumn, operation.scales);
    dnnl::post_ops relu;
    relu.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(relu);
    return attributes;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::string implementation_;
  dnnl::memory a_, c_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

class OneDnnPeer final : public Peer {
 public:
  std::string Name() const override { return "onednn"; }

  std::string Version() const override {
    const dnnl_version_t* const version = dnnl_version();
    return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  }

  std::optional<Error> Confine(jit::Isa isa) const override {
    omp_set_num_threads(1);
    if (dnnl::set_max_cpu_isa(CapOf(isa)) == dnnl::status::success) return std::nullopt;
    return Error{INTACT_UNSUPPORTED, fmt::format("oneDNN refuses to be confined to {}", jit::ToString(isa))};
  }

  Result<std::unique_ptr<Contender>> Make(const Workload& workload, const Case& c) const override {
    try {
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
