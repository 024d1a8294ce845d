// One asmjit session per generated function: the error handler, the frame, logging, and placing the code in
// memory.
//
// Begin() pushes the callee-saved registers that the RegisterFile has handed out so far, so a generator takes
// its general registers before it calls Begin(). Finish() refuses code that took another callee-saved
// register later.
#ifndef INTACT_JIT_ASSEMBLER_H_
#define INTACT_JIT_ASSEMBLER_H_

#include <asmjit/x86.h>

#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "jit/function.h"
#include "jit/register_file.h"

namespace intact::jit {

class Assembler {
 public:
  /// `name`: makes the kernel's name, for errors, the listing and the symbol. Most kernels need none of these.
  explicit Assembler(std::function<std::string()> name);
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  asmjit::x86::Assembler& code() { return code_; }

  /// Pushes the callee-saved registers that `registers` has handed out so far.
  void Begin(const RegisterFile& registers);
  /// Emits vzeroupper, pops, ret.
  void End();
  /// The executable function. CODEGEN_FAILED names the kernel and the first error of asmjit or of
  /// `registers`; OUT_OF_MEMORY and UNSUPPORTED as for CodeSpace.
  Result<Code> Finish(const RegisterFile& registers);

 private:
  class Recorder : public asmjit::ErrorHandler {
   public:
    void handleError(asmjit::Error error, const char* message, asmjit::BaseEmitter* origin) override;
    asmjit::Error first = asmjit::kErrorOk;
    std::string text;
  };

  Result<Code> Place();
  void Publish(const void* function, size_t size) const;

  std::function<std::string()> name_;
  Recorder errors_;
  asmjit::StringLogger logger_;
  asmjit::CodeHolder holder_;
  asmjit::x86::Assembler code_;
  std::vector<Gp> pushed_;
};

}  // namespace intact::jit
#endif  // INTACT_JIT_ASSEMBLER_H_
