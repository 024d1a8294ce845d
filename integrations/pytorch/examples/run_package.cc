// Runs a model that AOTInductor compiled and that calls intact's operators. This process has no Python.
//
//   intact_pytorch_run_package libintact_pytorch.so model.pt2 inputs.pt outputs.pt
//
// inputs.pt: torch.save() of a list of tensors. outputs.pt: torch.load() returns the tuple of outputs.
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/serialize.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

std::vector<char> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

void Run(const std::string& library, const std::string& package, const std::string& inputs,
         const std::string& outputs) {
  // The library registers its operators when it is loaded. It stays loaded.
  if (dlopen(library.c_str(), RTLD_NOW) == nullptr) throw std::runtime_error(dlerror());
  torch::inductor::AOTIModelPackageLoader model(package);
  const c10::IValue list = torch::pickle_load(Read(inputs));
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : list.toListRef()) tensors.push_back(value.toTensor());
  std::vector<c10::IValue> results;
  for (const at::Tensor& tensor : model.run(tensors)) results.emplace_back(tensor);
  // A tuple, because torch.load() refuses a list of C++ unless weights_only=False.
  const std::vector<char> bytes = torch::pickle_save(c10::ivalue::Tuple::create(std::move(results)));
  std::ofstream file(outputs, std::ios::binary);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
    throw std::runtime_error(outputs + ": cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: " << argv[0] << " libintact_pytorch.so model.pt2 inputs.pt outputs.pt\n";
    return 2;
  }
  try {
    Run(argv[1], argv[2], argv[3], argv[4]);
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << argv[0] << ": " << error.what_without_backtrace() << "\n";
    return 1;
  } catch (const std::exception& exception) {
    std::cerr << argv[0] << ": " << exception.what() << "\n";
    return 1;
  }
}
