// Makes GoogleTest print parameters of tests as words instead of numbers or bytes.
#ifndef INTACT_TESTS_SUPPORT_PRINTERS_H_
#define INTACT_TESTS_SUPPORT_PRINTERS_H_

#include <intact/intact.h>

#include <ostream>

#include "jit/emitters/dot.h"
#include "verify/explain/identify.h"
#include "verify/problem/problem.h"

// GoogleTest looks for PrintTo() in the namespace of the type. Types of the C ABI are global.
inline void PrintTo(intact_isa isa, std::ostream* out) { *out << intact_isa_name(isa); }
inline void PrintTo(intact_mode mode, std::ostream* out) { *out << intact::verify::ToString(mode); }
inline void PrintTo(intact_type type, std::ostream* out) { *out << intact::verify::ToString(type); }

namespace intact::jit {
inline void PrintTo(const DotSigns& signs, std::ostream* out) { *out << VnniInstruction(signs); }
}  // namespace intact::jit

namespace intact::verify {
inline void PrintTo(Fill fill, std::ostream* out) { *out << ToString(fill); }
inline void PrintTo(const OperationKind& kind, std::ostream* out) { *out << ToString(kind); }
}  // namespace intact::verify

#endif  // INTACT_TESTS_SUPPORT_PRINTERS_H_
