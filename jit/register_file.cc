#include "jit/register_file.h"

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

// Scratch registers first: callee-saved ones cost a push and a pop.
constexpr std::array kGeneralOrder = {x86::Gp::kIdAx,  x86::Gp::kIdCx, x86::Gp::kIdDx,  x86::Gp::kIdSi,
                                      x86::Gp::kIdR8,  x86::Gp::kIdR9, x86::Gp::kIdR10, x86::Gp::kIdR11,
                                      x86::Gp::kIdBx,  x86::Gp::kIdBp, x86::Gp::kIdR12, x86::Gp::kIdR13,
                                      x86::Gp::kIdR14, x86::Gp::kIdR15};

}  // namespace

Vec RegisterFile::NewVector(const char* name) {
  for (int id = 0; id < vector_count_; ++id) {
    const char*& holder = vector_names_[static_cast<size_t>(id)];
    if (holder != nullptr) continue;
    holder = name;
    const auto number = static_cast<uint32_t>(id);
    return vector_bytes_ == 64 ? Vec(x86::Zmm(number)) : Vec(x86::Ymm(number));
  }
  if (error_.empty()) error_ = "no vector register left for '" + std::string(name) + "'; held:" + Holders();
  return x86::Ymm(0);
}

Gp RegisterFile::NewGeneral(const char* name) {
  for (const auto id : kGeneralOrder) {
    const char*& holder = general_names_[static_cast<size_t>(id)];
    if (holder != nullptr) continue;
    holder = name;
    general_touched_[static_cast<size_t>(id)] = true;
    return x86::gpq(static_cast<uint32_t>(id));
  }
  if (error_.empty()) error_ = "no general register left for '" + std::string(name) + "'; held:" + Holders();
  return x86::rax;
}

Tile RegisterFile::NewTile(const char* name) {
  for (uint32_t id = 0; id < tile_names_.size(); ++id) {
    if (tile_names_[id] != nullptr) continue;
    tile_names_[id] = name;
    return Tile(id);
  }
  if (error_.empty()) error_ = "no tile left for '" + std::string(name) + "'; held:" + Holders();
  return Tile(0);
}

int RegisterFile::FreeVectors() const {
  int free = 0;
  for (int id = 0; id < vector_count_; ++id)
    free += vector_names_[static_cast<size_t>(id)] == nullptr ? 1 : 0;
  return free;
}

int RegisterFile::FreeGenerals() const {
  int free = 0;
  for (const auto id : kGeneralOrder) free += general_names_[static_cast<size_t>(id)] == nullptr ? 1 : 0;
  return free;
}

std::string RegisterFile::Holders() const {
  std::string text;
  const auto add = [&text](const auto& names) {
    for (const char* const name : names) {
      if (name != nullptr) text.append(" ").append(name);
    }
  };
  add(vector_names_);
  add(general_names_);
  add(tile_names_);
  return text;
}

}  // namespace intact::jit
