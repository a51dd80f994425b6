#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "config/config.h"
#include "nn/part_listener.h"
#include "parallel/groups.h"
#include "parallel/placement.h"

namespace switchyard {

// How a parameter starts. Every element is a function of (seed, logical name, flat logical index)
// alone, so all layouts, thread counts and processors start from the same bits.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal, kUniform, kLogOfUniform, kTimeStep, kLogOfCount };
  Kind kind = Kind::kZeros;
  double std = 0;  // kNormal: standard deviation around 0
  double low = 0;  // kUniform, kLogOfUniform, kTimeStep: what is drawn lies in [low, high)
  double high = 0;
  double floor = 0;    // kTimeStep: what is drawn below this is raised to it
  int64_t period = 1;  // kLogOfCount

  static Init zeros() { return {Kind::kZeros}; }
  static Init ones() { return {Kind::kOnes}; }
  static Init normal(double std) { return {Kind::kNormal, std}; }
  static Init uniform(double low, double high) { return {Kind::kUniform, 0, low, high}; }
  // The logarithm of a uniform number.
  static Init log_of_uniform(double low, double high) {
    return {Kind::kLogOfUniform, 0, low, high};
  }
  // Not drawn: the logarithms of 1 up to `period`, over and over.
  static Init log_of_count(int64_t period) { return {Kind::kLogOfCount, 0, 0, 0, 0, period}; }
  // The number whose softplus is a time step, drawn with equal chances on a logarithmic scale.
  static Init time_step(double low, double high, double floor) {
    return {Kind::kTimeStep, 0, low, high, floor};
  }
};

// Which folding of the mesh a parameter lives in.
enum class Family {
  kDense,   // over tp by `tensor`; the same on all ranks of dp x cp
  kExpert,  // cut over ep along dim 0, over etp by `tensor`; the same on all ranks of edp
};

// The one declaration of a parameter. Its local shape, initial values, gradient reduction, weight
// in the gradient norm and slice of a checkpoint all follow from it.
struct ParameterSpec {
  std::string name;            // logical: "layers.0.attention.q"
  std::vector<int64_t> shape;  // logical: over all ranks
  Init init;
  bool has_weight_decay = true;
  Family family = Family::kDense;
  // Over tp, or etp for experts. kSharded: cut along a dim (its `full` need not be set).
  // kInvariant: equal, with equal gradients. kReplicated: equal, and the gradient is the sum over
  // the axis.
  Placement tensor;
  // Whether the ranks of `tensor` may have parts that differ by one, as of a vocabulary that tp
  // does not divide.
  bool may_be_uneven = false;
  // A parameter that several pipeline stages use, such as a tied embedding, is on each of their
  // ranks: how many hold it, and which of them this is. Its gradient is the sum over them.
  int64_t num_copies = 1;
  int64_t copy_index = 0;
  // The model computes with it in the master dtype: rounding would change what follows too much, as
  // of a decay that acts thousands of times. Alike in all pieces of a storage.
  bool stays_wide = false;
};

// One logical parameter as this rank holds it: a contiguous part of a storage.
class Parameter {
 public:
  Parameter(ParameterSpec spec, const Groups& groups);

  const ParameterSpec& spec() const { return spec_; }
  const std::string& name() const { return spec_.name; }
  // The first logical index of the local part, per dim.
  const std::vector<int64_t>& local_start() const { return start_; }
  const std::vector<int64_t>& local_shape() const { return local_shape_; }
  int64_t local_numel() const;

  // The group over which its gradient is summed.
  GroupName gradient_group() const;
  // How many ranks hold the very same elements.
  int64_t num_replicas() const { return num_replicas_; }
  // Which of them this rank is, from 0 up, and whether it is the first.
  int64_t replica_index() const { return replica_index_; }
  bool is_first_replica() const { return replica_index_ == 0; }
  // How many gradient groups hold the very same elements and so come to equal gradients, as the tp
  // ranks do for a kInvariant parameter; and which of them is this rank's.
  int64_t num_gradient_groups() const { return num_gradient_groups_; }
  int64_t gradient_group_index() const { return gradient_group_index_; }

  // Initial values of the local part. [local_shape] of the given dtype.
  at::Tensor initial_values(uint64_t seed, at::ScalarType dtype) const;

 private:
  ParameterSpec spec_;
  std::vector<int64_t> start_;
  std::vector<int64_t> local_shape_;
  int64_t num_replicas_ = 1;
  int64_t replica_index_ = 0;
  int64_t num_gradient_groups_ = 1;
  int64_t gradient_group_index_ = 0;
};

// Arithmetic of a run: what the model computes in, and what the optimizer keeps.
struct Dtypes {
  at::ScalarType compute;  // parameters as the model uses them, and activations
  at::ScalarType master;   // parameters as the optimizer updates them; gradients; moments
  bool is_mixed() const { return compute != master; }

  static Dtypes fp64() { return {at::kDouble, at::kDouble}; }
  static Dtypes fp32() { return {at::kFloat, at::kFloat}; }
  static Dtypes bf16() { return {at::kBFloat16, at::kFloat}; }
  static Dtypes of(Precision precision);
};

// Consecutive elements of one piece of a storage.
struct PieceRange {
  size_t piece = 0;
  ShardRange elements = {0, 0};  // flat, within the piece
  int64_t in_storage = 0;        // flat index of the first in the storage
  int64_t in_list = 0;           // and among the elements of all ranges of its list

  int64_t size() const { return elements.size(); }
};

// Neighbouring pieces of a storage with one gradient_group().
struct GradientRun {
  GroupName group;
  ShardRange elements;  // flat, in the storage
};

// One local buffer that holds one or several logical parameters end to end, so that one GEMM serves
// them. The model multiplies with `leaf`; the optimizer works on `master` and `gradient`.
struct ParameterStorage {
  std::vector<Parameter> pieces;  // in order, end to end
  std::vector<GradientRun> gradient_runs;
  // Of each gradient run, this rank's shard_range over its gradient group: the ranks of the group
  // have each element of the run once.
  std::vector<PieceRange> shares;
  // What this rank's optimizer updates: `shares` where it is sharded, else every piece whole.
  std::vector<PieceRange> owned;
  // Whether some gradient group has several ranks, which each own some of its elements.
  bool is_divided = false;
  // Compute dtype (master dtype where its pieces stay wide), requires grad. Where parameters are
  // sharded and it is divided it has memory only while it is in use: see Partition.
  at::Tensor leaf;
  // Master dtype. Unless mixed it shares memory with `leaf`; sharded and mixed, or where the leaf
  // comes and goes, it holds the owned elements alone, [num_owned].
  at::Tensor master;
  // Master dtype, shaped like `leaf`, summed over micro-batches; undefined before the first.
  // Reduced and sharded, only the owned elements are the sum over ranks. Where gradients are
  // sharded it holds these alone, [num_owned].
  at::Tensor gradient;

  // The part of `whole` (any tensor with all elements of the storage) that holds piece i, in its
  // local shape. A view.
  at::Tensor piece(const at::Tensor& whole, size_t i) const;
  int64_t num_owned() const;
  // The part of `values` that holds an owned range; `values` has all elements of the storage or the
  // owned ones alone. [range.size()], a view.
  at::Tensor owned_of(const at::Tensor& values, const PieceRange& range) const;
  // Gives the leaf memory, of any content, or takes it away. What autograd has saved of the leaf
  // sees the same memory.
  void allocate_leaf();
  void free_leaf();

  // Adds leaf.grad() to `gradient` and drops it.
  void absorb_gradient();
  // Writes the owned master values into `leaf`, where they are two tensors.
  void publish_master();
};

// State that belongs to the model and is not trained by gradients, such as a router's selection
// bias: fp32 (or fp64), equal on all ranks.
struct Buffer {
  std::string name;
  at::Tensor tensor;
};

// What a declared parameter holds at first.
enum class FirstValues {
  kInitial,  // as its Init says
  kUnset,    // NaN, until it is loaded: an element that nothing fills shows
  kNone,     // no memory: to learn what parameters a model has
};

// Every parameter and buffer of a model on one rank, in order of declaration. The model's modules
// declare them as they are built and keep the leaf; optimizer, checkpoint and planner read this
// list.
class Parameters {
 public:
  Parameters(const Groups& groups, Dtypes dtypes, uint64_t seed,
             FirstValues first_values = FirstValues::kInitial,
             DataSharding sharding = DataSharding::kNone);

  // Declares logical parameters that share one buffer, and returns the leaf in `local_shape`
  // (its elements: the pieces end to end). Throws ConfigError when a cut dim does not divide
  // evenly and must, a name is taken or a declaration makes no sense, ShapeError when the pieces do
  // not fill `local_shape`. Not collective.
  at::Tensor declare(std::vector<ParameterSpec> pieces, const std::vector<int64_t>& local_shape);
  // A buffer of zeros in the master dtype. [shape]
  at::Tensor declare_buffer(const std::string& name, const std::vector<int64_t>& shape);

  std::vector<std::unique_ptr<ParameterStorage>>& storages() { return storages_; }
  const std::vector<std::unique_ptr<ParameterStorage>>& storages() const { return storages_; }
  const std::vector<Buffer>& buffers() const { return buffers_; }

  // Whether the tensor is a leaf or a view of one.
  bool hold(const at::Tensor& tensor) const;

  const Groups& groups() const { return groups_; }
  const Dtypes& dtypes() const { return dtypes_; }
  bool is_sharded() const { return sharding_ != DataSharding::kNone; }
  bool shards_gradients() const { return sharding_ >= DataSharding::kGradients; }
  bool shards_parameters() const { return sharding_ >= DataSharding::kParameters; }
  // Whether every rank has the master values of all elements it computes with.
  bool has_whole_masters() const {
    return !is_sharded() || (!dtypes_.is_mixed() && !shards_parameters());
  }
  // Who hears which parts of the model are in use; null for nobody. It must outlive the use.
  PartListener* part_listener() const { return part_listener_; }
  void set_part_listener(PartListener* listener) { part_listener_ = listener; }
  // Over all ranks of this rank's pipeline stages, each logical parameter once; a copy of one that
  // an earlier stage has does not count.
  int64_t logical_numel() const;

 private:
  void check_name_is_free(const std::string& name) const;
  at::Tensor first_values_of(const Parameter& piece) const;

  const Groups& groups_;
  Dtypes dtypes_;
  uint64_t seed_;
  FirstValues first_values_;
  DataSharding sharding_;
  PartListener* part_listener_ = nullptr;
  std::vector<std::unique_ptr<ParameterStorage>> storages_;
  std::vector<Buffer> buffers_;
};

// Where a module declares: the list, and the prefix of its names. `scope / "attention"` is the
// scope of a child.
struct Scope {
  Parameters& parameters;
  std::string prefix;

  Scope operator/(const std::string& child) const;
  std::string name(const std::string& leaf) const;
  const Groups& groups() const { return parameters.groups(); }
};

}  // namespace switchyard
