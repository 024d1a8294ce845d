#include "jit/emitters/emitter.h"

#include "core/isas.h"

namespace intact::jit {

std::vector<int32_t> PackOrder(int /*lanes*/) { return {}; }
int VectorBytes(core::Isa isa) { return core::TraitsOf(isa).vectors.bytes; }
int VectorCount(core::Isa isa) { return core::TraitsOf(isa).vectors.count; }

}  // namespace intact::jit
