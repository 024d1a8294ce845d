// All generators of code. Only plans for other ISAs than the portable one call them, and creating such a plan fails
// before.
#include "kernels/codegen/microkernel.h"

#include <cstdlib>

#include "kernels/codegen/amx_kernel.h"
#include "kernels/codegen/depthwise_kernel.h"
#include "kernels/codegen/grouped_kernel.h"
#include "kernels/codegen/grouped_minimum_kernel.h"
#include "kernels/codegen/grouped_tile_kernel.h"
#include "kernels/codegen/narrow_kernel.h"
#include "kernels/codegen/pixel_transpose.h"
#include "kernels/codegen/quantizer.h"
#include "kernels/codegen/scheduled_kernel.h"
#include "kernels/codegen/short_rows.h"
#include "kernels/codegen/tile_epilogue.h"
#include "kernels/weights/cut_panels.h"

namespace intact::kernels {
namespace {

Error NoCode() { return {INTACT_UNSUPPORTED, "this build of intact is not for x86-64"}; }

}  // namespace

// Names and sizes of kernels.
std::string AmxKernelSpec::Name() const { return {}; }
std::string DepthwiseKernelSpec::Name() const { return {}; }
std::string EpilogueSpec::Name() const { return {}; }
std::string GroupedKernelSpec::Name() const { return {}; }
std::string GroupedTileKernelSpec::Name() const { return {}; }
std::string MicrokernelSpec::Name() const { return {}; }
std::string NarrowKernelSpec::Name() const { return {}; }
int NarrowKernelSpec::MostStepRows(int64_t /*k*/) const { return 1; }
std::string ScheduledKernelSpec::Name() const { return {}; }
int DepthwisePixels(core::Isa /*isa*/) { return 1; }
int LargestGroupedMinimumRows(core::Isa /*isa*/) { return 1; }
int LargestGroupedRows(core::Isa /*isa*/, GroupedStep /*step*/) { return 1; }
int TileColumns(core::Isa /*isa*/, const EpilogueSpec& /*epilogue*/) { return 1; }

// What generated kernels read, or are chosen by.
KnownOutput KnowOutput(intact_type /*type*/, const OutputBounds& /*bounds*/, double /*largest*/) {
  return KnownOutput::kNothing;
}
EpilogueConstants MakeEpilogueConstants(const OutputBounds& /*bounds*/, const ResidualScale& /*residual*/,
                                        core::Isa /*isa*/) {
  return {};
}
GroupedConstants MakeGroupedConstants() { return {}; }
uint8_t PixelTransposeArgs::Largest() const { std::abort(); }
ScopedTiles::~ScopedTiles() = default;
void ScopedTiles::Configure(int64_t /*rows*/, int64_t /*depth*/) noexcept { std::abort(); }
bool ShortRows::Exist() { return false; }
uint32_t ShortRows::Quantize(intact_type /*source*/, intact_type /*a_type*/, uint8_t* /*a*/,
                             int64_t /*stride*/, RowValues* /*values*/) const noexcept {
  std::abort();
}
bool CutPanels(const PackedWeights& /*sizes*/, int /*amax*/, int64_t /*most*/, int8_t* /*panels*/,
               const ExtraQuads& /*extra*/) noexcept {
  return false;
}

Result<Quantizer> Quantizer::Create(core::Isa /*isa*/, intact_type a_type, intact_type source) {
  Quantizer quantizer;
  quantizer.a_type_ = a_type;
  quantizer.source_ = source;
  return quantizer;
}

Result<AmxKernelFunction> GetAmxKernel(const AmxKernelSpec& /*spec*/) { return NoCode(); }
Result<AmxStoreFunction> GetAmxStore(const AmxStoreSpec& /*spec*/) { return NoCode(); }
Result<TileFunctions> GetTileFunctions() { return NoCode(); }
Result<DepthwiseKernelFunction> GetDepthwiseKernel(const DepthwiseKernelSpec& /*spec*/) { return NoCode(); }
Result<jit::Code> GetDepthwiseTail(DepthwiseKernelSpec /*spec*/, int /*pixels*/) { return NoCode(); }
Result<GroupedKernelFunction> GetGroupedKernel(const GroupedKernelSpec& /*spec*/) { return NoCode(); }
Result<GroupedExpansionFunction> GetGroupedExpansion(const GroupedExpansionSpec& /*spec*/) {
  return NoCode();
}
Result<GroupedOutputFunction> GetGroupedOutput(const GroupedOutputSpec& /*spec*/) { return NoCode(); }
Result<GroupedMinimumFunction> GetGroupedMinimumKernel(const GroupedMinimumSpec& /*spec*/) {
  return NoCode();
}
Result<GroupedTileKernelFunction> GetGroupedTileKernel(const GroupedTileKernelSpec& /*spec*/) {
  return NoCode();
}
Result<MicrokernelFunction> GetMicrokernel(const MicrokernelSpec& /*spec*/) { return NoCode(); }
Result<PixelTransposeFunction> GetPixelTranspose(bool /*shifts_to_u8*/, bool /*shuffles*/) {
  return NoCode();
}
Result<TileEpilogueFunction> GetTileEpilogue(core::Isa /*isa*/, EpilogueSpec /*epilogue*/, int /*tile_rows*/,
                                             int /*columns*/) {
  return NoCode();
}
Result<NarrowFunction> GetNarrowKernel(const NarrowKernelSpec& /*spec*/) { return NoCode(); }
Result<ScheduledKernelFunction> GetScheduledKernel(const ScheduledKernelSpec& /*spec*/) { return NoCode(); }

}  // namespace intact::kernels
