// Named registers under a checked budget. Generators ask for registers by name and never number them. If a
// block needs too many registers, the error lists the holders. So registers are never silently corrupted.
#ifndef INTACT_JIT_REGISTER_FILE_H_
#define INTACT_JIT_REGISTER_FILE_H_

#include <asmjit/x86.h>

#include <array>
#include <string>

namespace intact::jit {

using Vec = asmjit::x86::Vec;
using Gp = asmjit::x86::Gp;
using Mem = asmjit::x86::Mem;
using Tile = asmjit::x86::Tmm;

/// Vector registers of one width, the general registers of the System V ABI, without rsp, and AMX's tiles.
/// The first argument register, rdi, is handed out by Argument().
class RegisterFile {
 public:
  /// `vector_bytes` is 32 (ymm) or 64 (zmm); `vector_count` 16 or 32.
  RegisterFile(int vector_bytes, int vector_count)
      : vector_bytes_(vector_bytes), vector_count_(vector_count) {}

  /// `name` outlives the file.
  Vec NewVector(const char* name);
  Gp NewGeneral(const char* name);
  /// Hands out tiles in order, tmm0 first: TILECFG depends on the order.
  Tile NewTile(const char* name);
  void Free(const Vec& vector) { vector_names_[vector.id()] = nullptr; }
  void Free(const Gp& general) { general_names_[general.id()] = nullptr; }
  Gp Argument() const { return asmjit::x86::rdi; }

  int vector_bytes() const { return vector_bytes_; }
  int FreeVectors() const;
  int FreeGenerals() const;
  /// Whether `general` was ever handed out, and so must be saved if it is callee-saved.
  bool Touched(const Gp& general) const { return general_touched_[general.id()]; }
  /// The first error, with the list of the registers' holders; "" if there is no error.
  const std::string& error() const { return error_; }

 private:
  std::string Holders() const;

  int vector_bytes_;
  int vector_count_;
  std::array<const char*, 32> vector_names_ = {};  // null: free
  std::array<const char*, 16> general_names_ = {};
  std::array<const char*, 8> tile_names_ = {};
  std::array<bool, 16> general_touched_ = {};
  std::string error_;
};

}  // namespace intact::jit
#endif  // INTACT_JIT_REGISTER_FILE_H_
