#include "bench/balance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "bench/contender.h"
#include "bench/workload.h"
#include "core/isas.h"
#include "core/result.h"
#include "core/types.h"
#include "kernels/api/create.h"
#include "reference/contract/linear.h"

namespace intact::bench {
namespace {

using kernels::Share;

constexpr int64_t kLineBytes = 64;
constexpr intact_type kType = INTACT_U8;  // its cache lines hold the most columns
constexpr double kFloor = 0.85;

/// The cache lines of C that several shares write, over all cache lines.
double SharedLines(std::span<const Share> shares, int64_t m, int64_t row_bytes, int64_t element_bytes) {
  constexpr int32_t kNone = -1, kSeveral = -2;
  std::vector<int32_t> writers(static_cast<size_t>((m * row_bytes + kLineBytes - 1) / kLineBytes), kNone);
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto writer = static_cast<int32_t>(i);
    for (const Share::Rows& rows : shares[i].rows) {
      for (int64_t row = 0; row < rows.count; ++row) {
        const int64_t at = (rows.first + row * rows.step) * row_bytes;
        const int64_t begin = (at + rows.column_begin * element_bytes) / kLineBytes;
        const int64_t last = (at + rows.column_end * element_bytes - 1) / kLineBytes;
        for (int64_t line = begin; line <= last; ++line) {
          int32_t& known = writers[static_cast<size_t>(line)];
          known = known == kNone || known == writer ? writer : kSeveral;
        }
      }
    }
  }
  return static_cast<double>(std::ranges::count(writers, kSeveral)) / static_cast<double>(writers.size());
}

/// Asks one plan for the shares of any number of threads.
template <class Shares>
Result<std::vector<Balance>> BalancesOf(const Shape& shape, const Shares& shares) {
  ASSIGN_OR_RETURN(const std::vector<Share> whole, shares(1));
  std::vector<Balance> balances;
  for (const int threads : kBalanceThreads) {
    ASSIGN_OR_RETURN(const std::vector<Share> cut, shares(threads));
    balances.push_back(BalanceOf(cut, threads, whole.front().work, shape.m, core::BytesOf(kType), shape.n));
  }
  return balances;
}

Result<std::vector<Balance>> BalancesOf(const Case& c) {
  const Workload workload(c);
  if (c.shape.conv) {
    const ConvDesc desc = ConvDescOf(workload, c);
    ASSIGN_OR_RETURN(const auto plan, kernels::MakePlan(desc, desc.linear, workload.b().data()));
    intact_conv_args args = INTACT_CONV_ARGS_INIT;
    args.batch = c.shape.conv->batch;
    return BalancesOf(c.shape, [&](int threads) {
      args.threads = threads;
      return plan->Shares(args);
    });
  }
  const GemmDesc desc = GemmDescOf(workload, c);
  ASSIGN_OR_RETURN(const auto plan, kernels::MakePlan(desc, desc.linear, workload.b().data()));
  return BalancesOf(
      c.shape, [&](int threads) { return Result<std::vector<Share>>(plan->Shares(c.shape.m, threads)); });
}

std::string Cell(const Balance& balance) {
  std::string text = fmt::format("{:.2f}", balance.of_used);
  text += balance.used < balance.threads ? fmt::format(" ({:>3})", balance.used) : "      ";
  text += fmt::format(" {:.2f}", balance.efficiency);
  const auto percent = 100 * balance.shared_lines;
  return text + (percent == 0 ? "     " : percent < 0.5 ? "  <1%" : fmt::format(" {:3.0f}%", percent));
}

}  // namespace

Balance BalanceOf(std::span<const Share> shares, int threads, double single, int64_t m, int64_t element_bytes,
                  int64_t n) {
  Balance balance;
  balance.threads = threads;
  double largest = 0;
  double all = 0;
  for (const Share& share : shares) {
    balance.used += share.work > 0 ? 1 : 0;
    largest = std::max(largest, share.work);
    all += share.work;
  }
  balance.of_used = all / (balance.used * largest);
  balance.efficiency = single / (threads * largest);
  balance.shared_lines = SharedLines(shares, m, n * element_bytes, element_bytes);
  return balance;
}

Result<std::string> BalanceTable(const Request& request, core::Isa isa) {
  constexpr int kName = 32, kCell = 20;
  std::string text = fmt::format(
      "{}, u8 output, computed from the cost model, not measured. For each number of threads:\n"
      "the mean work of busy threads over the largest (and their number, if some are idle),\n"
      "the work of a run on one thread over the time of all threads (idle threads and smaller tiles count),\n"
      "and the share of C's cache lines that several threads write\n\n{:<{}}",
      core::ToString(isa), "M×N×K, or the convolution", kName);
  for (const int threads : kBalanceThreads) {
    text += fmt::format("  {:<{}}", fmt::format("{} threads", threads), kCell);
  }
  Case c;
  c.isa = isa;
  c.format.c_type = kType;
  std::array<std::vector<Balance>, kBalanceThreads.size()> all;
  for (const Layer& layer : request.suite->layers) {
    if (layer.shape.batch) continue;  // cut by items too
    c.shape = layer.shape;
    c.weights = request.WeightsFor(layer);
    ASSIGN_OR_RETURN(const std::vector<Balance> balances, BalancesOf(c));
    text += fmt::format("\n{:<{}}", c.shape.ToString(), kName);
    for (size_t i = 0; i < all.size(); ++i) {
      text += fmt::format("  {:<{}}", Cell(balances[i]), kCell);
      all[i].push_back(balances[i]);
    }
  }
  const auto add_line = [&](std::string_view name, const auto& figure_of) {
    text += fmt::format("\n{:<{}}", name, kName);
    for (const std::vector<Balance>& balances : all)
      text += fmt::format("  {:<{}}", figure_of(balances), kCell);
  };
  const auto worst_of = [](double Balance::*figure) {
    return [figure](const std::vector<Balance>& balances) {
      return fmt::format("{:.2f}", (*std::ranges::min_element(balances, {}, figure)).*figure);
    };
  };
  const auto count_low = [](double Balance::*figure) {
    return [figure](const std::vector<Balance>& balances) {
      const auto is_low = [](double balance) { return balance < kFloor; };
      return fmt::format("{} of {}", std::ranges::count_if(balances, is_low, figure), balances.size());
    };
  };
  add_line("worst of threads with work", worst_of(&Balance::of_used));
  add_line(fmt::format("below {:.2f}", kFloor), count_low(&Balance::of_used));
  add_line("worst of all threads", worst_of(&Balance::efficiency));
  add_line(fmt::format("below {:.2f}", kFloor), count_low(&Balance::efficiency));
  return text + "\n\n";
}

}  // namespace intact::bench
