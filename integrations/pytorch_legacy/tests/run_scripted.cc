// Runs a TorchScript program with intact's operators from C++: run_scripted model.pt N C H W prints the
// outputs for the input 0, 1, … divided by the number of its elements. The linked libintact_torch.so has the
// operators.
#include <torch/script.h>

#include <cstdio>
#include <cstdlib>

int main(int, char** argv) {
  const torch::NoGradGuard no_grad;
  const std::vector<int64_t> sizes = {atoll(argv[2]), atoll(argv[3]), atoll(argv[4]), atoll(argv[5])};
  const int64_t count = sizes[0] * sizes[1] * sizes[2] * sizes[3];
  const torch::Tensor input = (torch::arange(count, torch::kFloat) / count).reshape(sizes);
  const torch::Tensor output = torch::jit::load(argv[1]).forward({input}).toTensor().contiguous();
  for (int64_t i = 0; i < output.numel(); ++i) std::printf("%.9g\n", output.data_ptr<float>()[i]);
}
