// Pairs channels so that VPMADDUBSW, which adds the products of two adjacent depths in int16, cannot clamp.
// Two channels make a safe pair if their weights fit each other in every column of every matrix that reads
// the channels. Safe pairs are the edges of a graph. A maximum matching of this graph is an order with the
// most safe pairs. intact/_repair/order.py is the caller.
//
// If no order is safe, some matrices must have unsafe pairs. Without these matrices more pairs are safe, so
// the graph has more edges. The search looks for the cheapest set of matrices without which the graph has a
// perfect matching. The search is local: an exhaustive search takes time that is exponential in the number of
// matrices.
//
// If weights may be shortened, the search is for the matching of the least change: a pair costs the squared
// change that makes it safe.
#include <stdint.h>

#define LEMON_ONLY_TEMPLATES  // headers only; nothing is linked
#include <lemon/matching.h>
#include <lemon/smart_graph.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

// The weights of one consumer: int8, channels × columns. `high`: the largest u8 activation. `cost`: of unsafe
// pairs in this matrix, or of a squared step of change. Strides are in bytes.
struct ChannelMatrix {
  const int8_t* weights;
  int64_t columns, channel_stride, column_stride;
  int32_t high;
  double cost;
};

namespace {

constexpr int kTile = 64;  // columns that are copied at once

constexpr size_t At(int64_t index) { return static_cast<size_t>(index); }

using Mates = std::vector<int>;  // the mate of each node; -1: none

bool IsZero(uint64_t word) { return word == 0; }

// A set of pairs of nodes: for each node, a bit for each node of its block. Blocks have `size` nodes.
class Pairs {
 public:
  Pairs(int nodes, int size)
      : nodes_(nodes), size_(size), words_((size + 63) / 64), bits_(At(nodes) * At(words_)) {}

  int nodes() const { return nodes_; }
  int size() const { return size_; }
  int words() const { return words_; }
  int FirstOfBlock(int node) const { return node / size_ * size_; }
  uint64_t* Row(int node) { return &bits_[At(node) * At(words_)]; }
  const uint64_t* Row(int node) const { return &bits_[At(node) * At(words_)]; }
  bool Has(int node, int other) const {
    const int place = other - FirstOfBlock(node);
    return Row(node)[place / 64] >> (place % 64) & 1;
  }
  bool IsEmpty() const { return std::all_of(bits_.begin(), bits_.end(), IsZero); }
  void Add(const Pairs& other) {
    for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= other.bits_[i];
  }
  // Adds the pair (b, a) for each pair (a, b).
  void MakeSymmetric();

 private:
  int nodes_, size_, words_;
  std::vector<uint64_t> bits_;
};

// Transposes a matrix of bits: swaps halves, then halves of halves.
void Transpose(uint64_t square[64]) {
  uint64_t mask = 0xffffffff;
  for (int half = 32; half > 0; half /= 2, mask ^= mask << half) {
    for (int i = 0; i < 64; i = ((i | half) + 1) & ~half) {
      const uint64_t swapped = (square[i] >> half ^ square[i | half]) & mask;
      square[i] ^= swapped << half;
      square[i | half] ^= swapped;
    }
  }
}

void Pairs::MakeSymmetric() {
  uint64_t one[64], other[64];
  for (int block = 0; block < nodes_; block += size_) {
    const auto load = [&](int row, int column, uint64_t* square) {
      for (int i = 0; i < 64; ++i) square[i] = row * 64 + i < size_ ? Row(block + row * 64 + i)[column] : 0;
      Transpose(square);
    };
    const auto add = [&](int row, int column, const uint64_t* square) {
      for (int i = 0; i < 64 && row * 64 + i < size_; ++i) Row(block + row * 64 + i)[column] |= square[i];
    };
    for (int row = 0; row < words_; ++row) {
      for (int column = 0; column <= row; ++column) {
        load(row, column, one);
        load(column, row, other);
        add(column, row, one);
        add(row, column, other);
      }
    }
  }
}

// Adds the unsafe pairs of one column: two channels whose weights of one sign sum to more than `limit`. The
// heavier channel has more than half of `limit`, so only rows of heavy channels are written: the table is not
// symmetric.
class Column {
 public:
  explicit Column(const Pairs& pairs) : sorted_(At(pairs.size())), partners_(At(pairs.words())) {}

  // `sign` is 1 or -1; `values` has `count` channels of the block that begins at node `first`.
  void Mark(const int8_t* values, int count, int sign, int limit, int first, Pairs* pairs) {
    int largest = 0;
    for (int i = 0; i < count; ++i) largest = std::max(largest, sign * values[i]);
    if (2 * largest <= limit) return;
    // Channels by weight, the largest first, down to the smallest that is unsafe with the largest.
    const int least = std::max(1, limit + 1 - largest);
    int ends[130] = {};  // ends[w]: how many channels have a weight of w or more
    for (int i = 0; i < count; ++i) {
      const int weight = sign * values[i];
      if (weight >= least) ++ends[weight];
    }
    for (int weight = largest; weight >= least; --weight) ends[weight] += ends[weight + 1];
    if (ends[least] < 2) return;
    int places[130];
    std::copy(ends + 1, ends + 130, places);  // where the next channel of each weight goes
    for (int i = 0; i < count; ++i) {
      const int weight = sign * values[i];
      if (weight >= least) sorted_[At(places[weight]++)] = i;
    }
    // From the lightest heavy channel up, so that partners are only added.
    std::fill(partners_.begin(), partners_.end(), 0);
    int added = 0;
    for (int weight = limit / 2 + 1; weight <= largest; ++weight) {
      const int begin = weight < largest ? ends[weight + 1] : 0;
      if (begin == ends[weight]) continue;
      for (const int end = ends[std::max(1, limit + 1 - weight)]; added < end; ++added) {
        partners_[At(sorted_[At(added)] / 64)] |= uint64_t{1} << sorted_[At(added)] % 64;
      }
      for (int i = begin; i < ends[weight]; ++i) {
        uint64_t* const row = pairs->Row(first + sorted_[At(i)]);
        for (size_t word = 0; word < partners_.size(); ++word) row[word] |= partners_[word];
      }
    }
  }

 private:
  std::vector<int> sorted_;
  std::vector<uint64_t> partners_;
};

// Adds a matrix's unsafe pairs. If there are fewer nodes than channels, a node stands for one channel of
// every block.
void AddUnsafePairs(const ChannelMatrix& matrix, int64_t channels, Pairs* pairs) {
  if (matrix.high <= 0) return;
  const int most = 32767 / matrix.high, least = 32768 / matrix.high;
  if (most >= 2 * 127 && least >= 2 * 128) return;
  const int count = static_cast<int>(
      std::min<int64_t>(channels, pairs->size()));  // the node beyond an odd number of them is zero
  Column column(*pairs);
  std::vector<int8_t> tile(At(kTile) * At(count));
  for (int64_t block = 0; block < channels; block += count) {
    for (int64_t begin = 0; begin < matrix.columns; begin += kTile) {
      const int width = static_cast<int>(std::min<int64_t>(kTile, matrix.columns - begin));
      for (int i = 0; i < count; ++i) {
        const int8_t* const row =
            matrix.weights + (block + i) * matrix.channel_stride + begin * matrix.column_stride;
        for (int j = 0; j < width; ++j) tile[At(j * count + i)] = row[j * matrix.column_stride];
      }
      for (int j = 0; j < width; ++j) {
        const int first = static_cast<int>(block % pairs->nodes());
        column.Mark(&tile[At(j * count)], count, 1, most, first, pairs);
        column.Mark(&tile[At(j * count)], count, -1, least, first, pairs);
      }
    }
  }
  pairs->MakeSymmetric();
}

// Calls visit(other) for the nodes that make a safe pair with `node` and are in `among`, a row of bits.
// Starts after `node` and wraps around. Stops when visit() returns false.
template <typename Visit>
void VisitSafe(const Pairs& unsafe, int node, const uint64_t* among, Visit visit) {
  const int first = unsafe.FirstOfBlock(node), place = node - first;
  const uint64_t* const row = unsafe.Row(node);
  const auto range = [&](int begin, int end) {
    for (int word = begin / 64; word * 64 < end; ++word) {
      uint64_t bits = ~row[word] & among[word];
      if (word * 64 < begin) bits &= ~uint64_t{0} << (begin - word * 64);
      if (end - word * 64 < 64) bits &= (uint64_t{1} << (end - word * 64)) - 1;
      for (; bits != 0; bits &= bits - 1) {
        if (!visit(first + word * 64 + __builtin_ctzll(bits))) return false;
      }
    }
    return true;
  };
  if (range(place + 1, unsafe.size())) range(0, place);
}

// Enlarges matchings. One object serves one number of nodes and blocks.
class Matcher {
 public:
  Matcher(int nodes, int size)
      : nodes_(nodes), words_((size + 63) / 64), size_(size), all_(At(words_), ~uint64_t{0}) {}

  // Drops the matching's unsafe pairs, then makes it a maximum matching. Returns how many nodes have no mate.
  int Enlarge(const Pairs& unsafe, Mates* mates);

 private:
  void AddEdge(int one, int other) {
    graph_.addEdge(lemon::SmartGraph::nodeFromId(one), lemon::SmartGraph::nodeFromId(other));
  }
  void MatchGreedily(const Pairs& unsafe, Mates* mates) const;
  int Run(Mates* mates, std::vector<int>* status);
  std::vector<int> ComponentsOfSpare() const;

  int nodes_, words_, size_;
  std::vector<uint64_t> all_;
  lemon::SmartGraph graph_;
  std::vector<bool> spare_;  // nodes that have no mate in some maximum matching
};

// Nodes with few partners choose first, and take the free partner with the fewest partners.
void Matcher::MatchGreedily(const Pairs& unsafe, Mates* mates) const {
  std::vector<int> refused(At(nodes_), 0), order;
  std::vector<uint64_t> free(At(nodes_ / size_) * At(words_), 0);
  for (int node = 0; node < nodes_; ++node) {
    if ((*mates)[At(node)] >= 0) continue;
    for (int word = 0; word < words_; ++word) {
      refused[At(node)] += __builtin_popcountll(unsafe.Row(node)[word]);
    }
    order.push_back(node);
    free[At(node / size_ * words_ + node % size_ / 64)] |= uint64_t{1} << node % size_ % 64;
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int one, int other) { return refused[At(one)] > refused[At(other)]; });
  for (const int node : order) {
    if ((*mates)[At(node)] >= 0) continue;
    uint64_t* const block = &free[At(node / size_ * words_)];
    int best = -1;
    VisitSafe(unsafe, node, block, [&](int other) {
      if (best < 0 || refused[At(other)] > refused[At(best)]) best = other;
      return true;
    });
    if (best < 0) continue;
    (*mates)[At(node)] = best;
    (*mates)[At(best)] = node;
    for (const int taken : {node, best}) block[taken % size_ / 64] &= ~(uint64_t{1} << taken % size_ % 64);
  }
}

// Runs Edmonds' algorithm on the edges added so far. It starts from the pairs in `mates`, which must be
// edges.
int Matcher::Run(Mates* mates, std::vector<int>* status) {
  using Graph = lemon::SmartGraph;
  using Matching = lemon::MaxMatching<Graph>;
  // Of two equal edges, only one is matched.
  Graph::EdgeMap<bool> initial(graph_, false);
  std::vector<bool> matched(At(nodes_), false);
  for (int id = 0; id < graph_.edgeNum(); ++id) {
    const Graph::Edge edge = Graph::edgeFromId(id);
    const int one = Graph::id(graph_.u(edge)), other = Graph::id(graph_.v(edge));
    if ((*mates)[At(one)] != other || matched[At(one)]) continue;
    matched[At(one)] = matched[At(other)] = initial[edge] = true;
  }
  Matching matching(graph_);
  matching.matchingInit(initial);
  matching.startSparse();
  int left = 0;
  for (int node = 0; node < nodes_; ++node) {
    const Graph::Node mate = matching.mate(Graph::nodeFromId(node));
    (*mates)[At(node)] = mate == lemon::INVALID ? -1 : Graph::id(mate);
    (*status)[At(node)] = matching.status(Graph::nodeFromId(node));
    left += mate == lemon::INVALID;
  }
  return left;
}

// Numbers the connected components of the spare nodes. -1: the node is not spare.
std::vector<int> Matcher::ComponentsOfSpare() const {
  std::vector<int> components(At(nodes_), -1), open;
  for (int root = 0; root < nodes_; ++root) {
    if (!spare_[At(root)] || components[At(root)] >= 0) continue;
    components[At(root)] = root;
    open.push_back(root);
    while (!open.empty()) {
      const auto node = lemon::SmartGraph::nodeFromId(open.back());
      open.pop_back();
      for (lemon::SmartGraph::OutArcIt arc(graph_, node); arc != lemon::INVALID; ++arc) {
        const int next = lemon::SmartGraph::id(graph_.runningNode(arc));
        if (!spare_[At(next)] || components[At(next)] >= 0) continue;
        components[At(next)] = root;
        open.push_back(next);
      }
    }
  }
  return components;
}

// The graph of all safe pairs may have millions of edges, so Edmonds' algorithm runs on few of them. Its
// result has a proof (Gallai and Edmonds): without the nodes of status ODD, the spare nodes form components
// without other edges. A safe pair that joins two components, or a component and another node, would break
// the proof. Some of these pairs are added to the edges, until there are none. Then the matching is a maximum
// matching of all safe pairs.
int Matcher::Enlarge(const Pairs& unsafe, Mates* mates) {
  for (int node = 0; node < nodes_; ++node) {
    const int mate = (*mates)[At(node)];
    if (mate > node && unsafe.Has(node, mate)) (*mates)[At(node)] = (*mates)[At(mate)] = -1;
  }
  MatchGreedily(unsafe, mates);
  if (std::find(mates->begin(), mates->end(), -1) == mates->end()) return 0;

  int edges_each = 8;
  graph_.clear();
  for (int node = 0; node < nodes_; ++node) graph_.addNode();
  for (int node = 0; node < nodes_; ++node) {
    if ((*mates)[At(node)] > node) AddEdge(node, (*mates)[At(node)]);
    int count = 0;
    VisitSafe(unsafe, node, all_.data(), [&](int other) {
      AddEdge(node, other);
      return ++count < edges_each;
    });
  }
  std::vector<int> status(At(nodes_), 0);
  while (true) {
    const int left = Run(mates, &status);
    if (left == 0) return 0;
    spare_.assign(At(nodes_), false);
    std::vector<uint64_t> not_odd(At(nodes_ / size_) * At(words_), 0);
    for (int node = 0; node < nodes_; ++node) {
      spare_[At(node)] = status[At(node)] == lemon::MaxMatching<lemon::SmartGraph>::EVEN;
      if (status[At(node)] == lemon::MaxMatching<lemon::SmartGraph>::ODD) continue;
      not_odd[At(node / size_ * words_ + node % size_ / 64)] |= uint64_t{1} << node % size_ % 64;
    }
    const std::vector<int> components = ComponentsOfSpare();
    bool is_proven = true;
    for (int node = 0; node < nodes_; ++node) {
      if (!spare_[At(node)]) continue;
      int count = 0;
      VisitSafe(unsafe, node, &not_odd[At(node / size_ * words_)], [&](int other) {
        if (components[At(other)] == components[At(node)]) return true;
        AddEdge(node, other);
        is_proven = false;
        return ++count < edges_each;
      });
    }
    if (is_proven) return left;
    edges_each *= 2;
  }
}

// A perfect matching of the least cost, among the pairs that are added.
class CheapestMatching {
 public:
  explicit CheapestMatching(int nodes) : gains_(graph_) {
    for (int node = 0; node < nodes; ++node) graph_.addNode();
  }
  void Add(int one, int other, int64_t cost) {
    gains_[graph_.addEdge(Graph::nodeFromId(one), Graph::nodeFromId(other))] = -cost;
  }
  // Does not change `mates` if there is none.
  void Run(Mates* mates) {
    lemon::MaxWeightedPerfectMatching<Graph, Graph::EdgeMap<int64_t>> matching(graph_, gains_);
    if (!matching.run()) return;
    for (size_t node = 0; node < mates->size(); ++node) {
      (*mates)[node] = Graph::id(matching.mate(Graph::nodeFromId(static_cast<int>(node))));
    }
  }

 private:
  using Graph = lemon::SmartGraph;
  Graph graph_;
  Graph::EdgeMap<int64_t> gains_;
};

// How many partners of each kind are examined for a node. The time of a cheapest matching grows with the
// square.
int PairsEach(int nodes) {
  return static_cast<int>(std::max<int64_t>(16, (int64_t{1} << 28) / (int64_t{nodes} * nodes)));
}

constexpr double kBudget = 8e8;  // words that the search for better sets may read

using Set = std::vector<bool>;  // for each matrix: whether it may have unsafe pairs

// Looks for the cheapest set of matrices that may have unsafe pairs, so that every node has a mate.
class Search {
 public:
  Search(const std::vector<Pairs>& unsafe, std::vector<double> costs, Mates largest)
      : unsafe_(unsafe),
        costs_(std::move(costs)),
        largest_(std::move(largest)),
        all_(At(unsafe[0].words()), ~uint64_t{0}),
        matcher_(unsafe[0].nodes(), unsafe[0].size()) {}

  Mates Run();

 private:
  size_t matrices() const { return unsafe_.size(); }
  double Cost(const Set& set) const {
    double cost = 0;
    for (size_t i = 0; i < matrices(); ++i) cost += set[i] ? costs_[i] : 0;
    return cost;
  }
  Set CheapestSet();
  int Enlarge(const Pairs& unsafe, Mates* mates);
  int Left(const Set& set, Mates* mates);
  bool IsEnough(const Set& set) { return Left(set, nullptr) == 0; }
  std::vector<size_t> MatricesByCost() const;
  void Shrink(const std::vector<size_t>& order, Set* set);
  void TryExchanges(const Set& needed, Set* best);
  void LowerUnsafePairs(const Set& set, Mates* mates) const;

  const std::vector<Pairs>& unsafe_;
  std::vector<double> costs_;
  Mates largest_;
  std::vector<uint64_t> all_;
  Matcher matcher_;
  double budget_ = kBudget;
};

int Search::Enlarge(const Pairs& unsafe, Mates* mates) {
  budget_ -= unsafe.nodes() * (4.0 * unsafe.words() + 600);
  return matcher_.Enlarge(unsafe, mates);
}

// How many nodes have no mate if the matrices of a set may have unsafe pairs.
int Search::Left(const Set& set, Mates* mates) {
  Pairs unsafe(unsafe_[0].nodes(), unsafe_[0].size());
  for (size_t i = 0; i < matrices(); ++i) {
    if (set[i]) continue;
    unsafe.Add(unsafe_[i]);
    budget_ -= static_cast<double>(unsafe.nodes()) * unsafe.words();
  }
  Mates found = largest_;
  const int left = Enlarge(unsafe, &found);
  if (mates) *mates = std::move(found);
  return left;
}

// The costliest first.
std::vector<size_t> Search::MatricesByCost() const {
  std::vector<size_t> order(matrices());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t one, size_t other) { return costs_[one] > costs_[other]; });
  return order;
}

// Removes matrices from a set that is enough, in the given order, if the set stays enough.
void Search::Shrink(const std::vector<size_t>& order, Set* set) {
  Pairs unsafe(unsafe_[0].nodes(), unsafe_[0].size());
  for (size_t i = 0; i < matrices(); ++i) {
    if (!(*set)[i]) unsafe.Add(unsafe_[i]);
  }
  Mates mates = largest_;
  for (const size_t matrix : order) {
    if (!(*set)[matrix]) continue;
    Pairs with = unsafe;
    with.Add(unsafe_[matrix]);
    Mates found = mates;
    if (Enlarge(with, &found) > 0) continue;
    (*set)[matrix] = false;
    std::swap(unsafe, with);
    std::swap(mates, found);
  }
}

// Looks near the best set, until the budget is spent or many rounds find no cheaper set. A round starts with
// all matrices except one of the best set, and shrinks this set in a random order, the best set's matrices
// last. A set of equal cost also becomes the best.
void Search::TryExchanges(const Set& needed, Set* best) {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): equal arguments give equal orders
  for (size_t rounds = 0; rounds < 10 * matrices() && budget_ > 0; ++rounds) {
    std::vector<size_t> order(matrices());
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
    const auto is_first = [&](size_t matrix) { return (*best)[matrix] && !needed[matrix]; };
    const auto first = std::find_if(order.begin(), order.end(), is_first);
    if (first == order.end()) return;
    std::rotate(order.begin(), first, first + 1);
    std::stable_partition(order.begin() + 1, order.end(), [&](size_t matrix) { return !(*best)[matrix]; });
    Set set(matrices(), true);
    Shrink(order, &set);
    if (Cost(set) < Cost(*best)) rounds = 0;
    if (Cost(set) <= Cost(*best)) *best = set;
  }
}

Set Search::CheapestSet() {
  Set needed(matrices(), false);  // matrices without which all others together are not enough
  for (size_t i = 0; i < matrices(); ++i) {
    Set others(matrices(), true);
    others[i] = false;
    needed[i] = !IsEnough(others);
  }
  if (IsEnough(needed)) return needed;
  Set best(matrices(), true);
  Shrink(MatricesByCost(), &best);
  TryExchanges(needed, &best);
  return best;
}

Mates Search::Run() {
  const Set set = CheapestSet();
  Mates mates;
  Left(set, &mates);
  LowerUnsafePairs(set, &mates);
  return mates;
}

// Makes the fewest pairs unsafe that the set allows, and these in few matrices. If there are many pairs, it
// examines only some of them, which include the present ones.
void Search::LowerUnsafePairs(const Set& set, Mates* mates) const {
  const int nodes = unsafe_[0].nodes();
  const int pairs_each = PairsEach(nodes);
  Pairs refused(nodes, unsafe_[0].size()), unsafe = refused;
  for (size_t i = 0; i < matrices(); ++i) (set[i] ? unsafe : refused).Add(unsafe_[i]);
  CheapestMatching matching(nodes);
  const auto add = [&](int one, int other) {
    int64_t count = 0;
    if (unsafe.Has(one, other)) {
      for (size_t i = 0; i < matrices(); ++i) count += unsafe_[i].Has(one, other);
    }
    matching.Add(one, other, count == 0 ? 0 : count + nodes * static_cast<int64_t>(matrices()));
  };
  for (int node = 0; node < nodes; ++node) {
    if ((*mates)[At(node)] > node) add(node, (*mates)[At(node)]);
    int count[2] = {};  // safe pairs, unsafe pairs
    VisitSafe(refused, node, all_.data(), [&](int other) {
      if (other < node && pairs_each >= unsafe.size()) return true;  // the other node has added this pair
      if (count[unsafe.Has(node, other)]++ < pairs_each) add(node, other);
      return count[0] < pairs_each || count[1] < pairs_each;
    });
  }
  matching.Run(mates);
}

// The least squared change of weights that makes a pair safe, summed over columns and, times their costs,
// over matrices.
class Changes {
 public:
  Changes(const ChannelMatrix* matrices, int count, int channels, const Pairs& pairs)
      : matrices_(matrices), count_(count), channels_(channels), pairs_(pairs) {}

  // How far weights of a channel exceed half of the limit. A heavy channel makes costly pairs.
  double Heaviness(int node) const;
  double Of(int one, int other) const;
  double columns() const;

 private:
  // Calls visit(matrix, channel of `node`, channel of `other`) for each matrix; several times if a node
  // stands for a channel of each block.
  template <typename Visit>
  void VisitRows(int node, int other, Visit visit) const;
  static int64_t Excess(int sum, int most, int least) { return std::max({0, sum - most, -least - sum}); }

  const ChannelMatrix* matrices_;
  int count_, channels_;
  const Pairs& pairs_;
};

double Changes::columns() const {
  double columns = 0;
  for (int i = 0; i < count_; ++i) columns += static_cast<double>(matrices_[i].columns);
  return columns;
}

template <typename Visit>
void Changes::VisitRows(int node, int other, Visit visit) const {
  const int length = std::min(channels_, pairs_.size());
  if (std::max(node, other) >= channels_) return;  // the node beyond an odd number of channels is zero
  const int copies = pairs_.nodes() == pairs_.size() ? channels_ / length : 1;
  for (int i = 0; i < count_; ++i) {
    if (matrices_[i].high <= 0) continue;
    for (int copy = 0; copy < copies; ++copy)
      visit(matrices_[i], copy * length + node, copy * length + other);
  }
}

double Changes::Heaviness(int node) const {
  double total = 0;
  VisitRows(node, node, [&](const ChannelMatrix& matrix, int channel, int) {
    const int8_t* row = matrix.weights + channel * matrix.channel_stride;
    int64_t sum = 0;
    for (int64_t j = 0; j < matrix.columns; ++j) {
      const int64_t excess =
          Excess(2 * row[j * matrix.column_stride], 32767 / matrix.high, 32768 / matrix.high);
      sum += excess * excess;
    }
    total += matrix.cost * static_cast<double>(sum);
  });
  return total;
}

double Changes::Of(int one, int other) const {
  double total = 0;
  VisitRows(one, other, [&](const ChannelMatrix& matrix, int channel, int neighbour) {
    const int8_t* const row = matrix.weights + channel * matrix.channel_stride;
    const int8_t* const next = matrix.weights + neighbour * matrix.channel_stride;
    const int most = 32767 / matrix.high, least = 32768 / matrix.high;
    int64_t sum = 0;
    for (int64_t j = 0; j < matrix.columns; ++j) {
      // Both weights lose half of the excess. Each limit is 128 or more, so weights of opposite signs have no
      // excess.
      const int64_t excess =
          Excess(row[j * matrix.column_stride] + next[j * matrix.column_stride], most, least);
      sum += (excess * excess + excess % 2) / 2;
    }
    total += matrix.cost * static_cast<double>(sum);
  });
  return total;
}

constexpr double kWeights = 4e9;  // weights that the search for the matching of the least change may read

// The perfect matching of the least change. If there are many pairs, it examines only the present ones, some
// safe ones, and unsafe pairs with light channels.
void LowerChange(const ChannelMatrix* matrices, int count, int channels, const Pairs& unsafe, Mates* mates) {
  const int nodes = unsafe.nodes(), size = unsafe.size();
  const Changes changes(matrices, count, channels, unsafe);
  const double affordable = kWeights / (changes.columns() * nodes);
  const int pairs_each =
      std::max(16, std::min(PairsEach(nodes), static_cast<int>(std::min(affordable, 1e9))));
  std::vector<double> heaviness(At(nodes));
  for (int node = 0; node < nodes; ++node) heaviness[At(node)] = changes.Heaviness(node);
  std::vector<int> light(At(nodes));  // the nodes of each block, the lightest first
  std::iota(light.begin(), light.end(), 0);
  for (int block = 0; block < nodes; block += size) {
    std::stable_sort(light.begin() + block, light.begin() + block + size,
                     [&](int one, int other) { return heaviness[At(one)] < heaviness[At(other)]; });
  }
  struct Pair {
    int one, other;
    double change;
  };
  std::vector<Pair> pairs;
  const std::vector<uint64_t> all(At(unsafe.words()), ~uint64_t{0});
  for (int node = 0; node < nodes; ++node) {
    const int mate = (*mates)[At(node)], block = unsafe.FirstOfBlock(node);
    if (mate > node) pairs.push_back({node, mate, unsafe.Has(node, mate) ? changes.Of(node, mate) : 0});
    int safe = 0, heavy = 0;
    VisitSafe(unsafe, node, all.data(), [&](int other) {
      if (other > node || pairs_each < size) pairs.push_back({node, other, 0});
      return ++safe < pairs_each;
    });
    for (int i = block; i < block + size && heavy < pairs_each; ++i) {
      const int other = light[At(i)];
      if (other == node || !unsafe.Has(node, other)) continue;
      ++heavy;
      if (other > node || pairs_each < size) pairs.push_back({node, other, changes.Of(node, other)});
    }
  }
  double largest = 0;
  for (const Pair& pair : pairs) largest = std::max(largest, pair.change);
  CheapestMatching matching(nodes);
  for (const Pair& pair : pairs) {
    const double scaled = largest > 0 ? pair.change / largest * (int64_t{1} << 36) : 0;
    matching.Add(pair.one, pair.other, static_cast<int64_t>(scaled) + unsafe.Has(pair.one, pair.other));
  }
  matching.Run(mates);
}

void Order(const ChannelMatrix* matrices, int count, int channels, int blocks, bool same_in_blocks,
           bool allow_zero, bool least_change, int32_t* mates) {
  const int length = channels / blocks;
  const int size = length + length % 2;  // the mate of an odd last channel is a channel of zeros
  const int nodes = same_in_blocks ? size : size * blocks;
  Pairs any(nodes, size);
  std::vector<Pairs> unsafe;
  std::vector<double> costs;
  for (int i = 0; i < count; ++i) {
    Pairs pairs(nodes, size);
    AddUnsafePairs(matrices[i], channels, &pairs);
    if (pairs.IsEmpty()) continue;
    any.Add(pairs);
    if (allow_zero || least_change) continue;
    unsafe.push_back(std::move(pairs));
    costs.push_back(matrices[i].cost);
  }
  Mates found(At(nodes), -1);
  for (int node = 0; node < nodes; ++node) found[At(node)] = node ^ 1;
  Matcher matcher(nodes, size);
  if (matcher.Enlarge(any, &found) > 0 && !allow_zero) {
    if (least_change) {
      LowerChange(matrices, count, channels, any, &found);
    } else {
      found = Search(unsafe, costs, found).Run();
    }
  }
  std::copy(found.begin(), found.end(), mates);
}

}  // namespace

// Writes the mate of each node; -1: none. There is a node for each channel, with same_in_blocks only for the
// channels of the first block, and a last node of zeros if the number of channels is odd. If there are
// several blocks, each has an even number of channels. `least_change`: unsafe pairs are chosen by the squared
// change that makes them safe. Returns 0, or 1 if memory ran out.
extern "C" __attribute__((visibility("default"))) int intact_order_channels(
    const ChannelMatrix* matrices, int32_t count, int32_t channels, int32_t blocks, int32_t same_in_blocks,
    int32_t allow_zero_channels, int32_t least_change, int32_t* mates) {
  try {
    Order(matrices, count, channels, blocks, same_in_blocks != 0, allow_zero_channels != 0, least_change != 0,
          mates);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
