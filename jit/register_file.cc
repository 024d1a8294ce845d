#include "jit/register_file.h"

#include <utility>

namespace intact::jit {
namespace {

namespace x86 = asmjit::x86;

// Scratch registers first: callee-saved ones cost a push and a pop.
constexpr std::array kGeneralOrder = {x86::Gp::kIdAx,  x86::Gp::kIdCx, x86::Gp::kIdDx,  x86::Gp::kIdSi,
                                      x86::Gp::kIdR8,  x86::Gp::kIdR9, x86::Gp::kIdR10, x86::Gp::kIdR11,
                                      x86::Gp::kIdBx,  x86::Gp::kIdBp, x86::Gp::kIdR12, x86::Gp::kIdR13,
                                      x86::Gp::kIdR14, x86::Gp::kIdR15};

}  // namespace

Vec RegisterFile::NewVector(std::string name) {
  for (int id = 0; id < vector_count_; ++id) {
    std::string& holder = vector_names_[static_cast<size_t>(id)];
    if (!holder.empty()) continue;
    holder = std::move(name);
    const auto number = static_cast<uint32_t>(id);
    return vector_bytes_ == 64 ? Vec(x86::Zmm(number)) : Vec(x86::Ymm(number));
  }
  if (error_.empty()) error_ = "no vector register left for '" + name + "'; held:" + Holders();
  return x86::Ymm(0);
}

Gp RegisterFile::NewGeneral(std::string name) {
  for (const auto id : kGeneralOrder) {
    std::string& holder = general_names_[static_cast<size_t>(id)];
    if (!holder.empty()) continue;
    holder = std::move(name);
    general_touched_[static_cast<size_t>(id)] = true;
    return x86::gpq(static_cast<uint32_t>(id));
  }
  if (error_.empty()) error_ = "no general register left for '" + name + "'; held:" + Holders();
  return x86::rax;
}

Tile RegisterFile::NewTile(std::string name) {
  for (uint32_t id = 0; id < tile_names_.size(); ++id) {
    if (!tile_names_[id].empty()) continue;
    tile_names_[id] = std::move(name);
    return Tile(id);
  }
  if (error_.empty()) error_ = "no tile left for '" + name + "'; held:" + Holders();
  return Tile(0);
}

int RegisterFile::FreeVectors() const {
  int free = 0;
  for (int id = 0; id < vector_count_; ++id) free += vector_names_[static_cast<size_t>(id)].empty() ? 1 : 0;
  return free;
}

int RegisterFile::FreeGenerals() const {
  int free = 0;
  for (const auto id : kGeneralOrder) free += general_names_[static_cast<size_t>(id)].empty() ? 1 : 0;
  return free;
}

std::string RegisterFile::Holders() const {
  std::string text;
  for (const std::string& name : vector_names_) text += name.empty() ? "" : " " + name;
  for (const std::string& name : general_names_) text += name.empty() ? "" : " " + name;
  for (const std::string& name : tile_names_) text += name.empty() ? "" : " " + name;
  return text;
}

}  // namespace intact::jit
