#include "bench/onednn_peer.h"

#include <fmt/format.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <utility>

#include "bench/workload.h"

namespace intact::bench {
namespace {

using Descriptor = dnnl::memory::desc;
using Type = dnnl::memory::data_type;
using Layout = dnnl::memory::format_tag;

dnnl::cpu_isa CapOf(jit::Isa isa) {
  switch (isa) {
    case jit::Isa::kAvx2:
      return dnnl::cpu_isa::avx2;
    case jit::Isa::kAvxVnni:
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

class OneDnnContender final : public Contender {
 public:
  // Throws dnnl::error.
  OneDnnContender(const reference::Gemm& gemm, intact_type c_type)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    const Descriptor a({gemm.m, gemm.k}, Type::u8, Layout::ab);
    const Descriptor b({gemm.k, gemm.n}, Type::s8, Layout::any);
    const Descriptor c({gemm.m, gemm.n}, c_type == INTACT_S32 ? Type::s32 : Type::u8, Layout::ab);
    primitive_ = {dnnl::matmul::desc(a, b, c), Attributes(gemm, c_type), engine_};
    matmul_ = dnnl::matmul(primitive_);
    const Descriptor plain({gemm.k, gemm.n}, Type::s8, Layout::ab);
    dnnl::memory weights(plain, engine_, const_cast<int8_t*>(gemm.b.data()));  // read only
    dnnl::memory packed(primitive_.weights_desc(), engine_);
    dnnl::reorder(weights, packed).execute(stream_, weights, packed);
    stream_.wait();
    is_plain_ = primitive_.weights_desc() == plain;
    a_ = dnnl::memory(a, engine_, nullptr);
    c_ = dnnl::memory(c, engine_, nullptr);
    arguments_ = {{DNNL_ARG_SRC, a_}, {DNNL_ARG_WEIGHTS, packed}, {DNNL_ARG_DST, c_}};
  }

  std::string Implementation() const override {
    return fmt::format("{}{}", primitive_.impl_info_str(), is_plain_ ? ", weights not packed" : "");
  }

  bool Run(const uint8_t* a, uint8_t* c) override {
    try {
      if (a_.get_data_handle() != a) a_.set_data_handle(const_cast<uint8_t*>(a), stream_);  // read only
      if (c_.get_data_handle() != c) c_.set_data_handle(c, stream_);
      matmul_.execute(stream_, arguments_);
      stream_.wait();
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }

 private:
  static dnnl::primitive_attr Attributes(const reference::Gemm& gemm, intact_type c_type) {
    dnnl::primitive_attr attributes;
    if (c_type == INTACT_S32) return attributes;
    constexpr int kPerColumn = 1 << 1;
    attributes.set_output_scales(kPerColumn, gemm.scales);
    dnnl::post_ops relu;
    relu.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0.0f, 0.0f);
    attributes.set_post_ops(relu);
    return attributes;
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul::primitive_desc primitive_;
  dnnl::matmul matmul_;
  bool is_plain_ = false;
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
      return std::unique_ptr<Contender>(std::make_unique<OneDnnContender>(workload.gemm(), c.c_type));
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
