#include "nn/parameters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/ranges.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "base/random.h"

namespace switchyard {
namespace {

constexpr char kNameTaken[] = "two parameters are named {}";

int64_t product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

// Calls visit(local flat index, logical flat index) for the elements of a box, rows of the last dim
// at a time.
void for_each_row(const std::vector<int64_t>& shape, const std::vector<int64_t>& start,
                  const std::vector<int64_t>& local_shape,
                  const std::function<void(int64_t local, int64_t logical, int64_t count)>& visit) {
  const size_t dims = shape.size();
  const int64_t row = local_shape.back();
  const int64_t num_rows = row == 0 ? 0 : product(local_shape) / row;
  constexpr int64_t kRowsPerTask = 64;
  at::parallel_for(0, num_rows, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r;
      int64_t logical = start.back();
      int64_t stride = shape.back();
      for (size_t dim = dims - 1; dim-- > 0;) {
        logical += (start[dim] + rest % local_shape[dim]) * stride;
        rest /= local_shape[dim];
        stride *= shape[dim];
      }
      visit(r * row, logical, row);
    }
  });
}

// Element `index` of what an Init gives.
double draw(const Init& init, const RandomStream& stream, uint64_t index) {
  const auto between = [&](double low, double high) {
    return low + (high - low) * stream.uniform(index);
  };
  switch (init.kind) {
    case Init::Kind::kNormal:
      return init.std * stream.normal(index);
    case Init::Kind::kUniform:
      return between(init.low, init.high);
    case Init::Kind::kLogOfUniform:
      return std::log(between(init.low, init.high));
    case Init::Kind::kTimeStep: {
      const double step =
          std::max(std::exp(between(std::log(init.low), std::log(init.high))), init.floor);
      return step + std::log(-std::expm1(-step));  // softplus of this is `step`
    }
    case Init::Kind::kLogOfCount:
      return std::log(static_cast<double>(index % static_cast<uint64_t>(init.period) + 1));
    case Init::Kind::kZeros:
    case Init::Kind::kOnes:
      break;
  }
  return 0;
}

template <class T>
void fill_drawn(at::Tensor& values, const ParameterSpec& spec, const std::vector<int64_t>& start,
                const std::vector<int64_t>& local_shape, uint64_t seed) {
  const RandomStream stream(seed, spec.name);
  auto* data = values.mutable_data_ptr<T>();
  for_each_row(spec.shape, start, local_shape, [&](int64_t local, int64_t logical, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      data[local + i] = static_cast<T>(draw(spec.init, stream, static_cast<uint64_t>(logical + i)));
    }
  });
}

void check_spec(const ParameterSpec& spec) {
  const bool has_elements =
      std::all_of(spec.shape.begin(), spec.shape.end(), [](int64_t size) { return size > 0; });
  check<ConfigError>(
      !spec.shape.empty() && has_elements,
      "{}: shape [{}] has no elements to train: at least one dim and sizes from 1 up "
      "are expected",
      spec.name, fmt::join(spec.shape, ", "));
  const auto num_dims = static_cast<int64_t>(spec.shape.size());
  check<ConfigError>(spec.tensor.kind != PlacementKind::kSharded ||
                         (spec.tensor.dim >= 0 && spec.tensor.dim < num_dims),
                     "{}: there is no dim {} to cut in shape [{}]", spec.name, spec.tensor.dim,
                     fmt::join(spec.shape, ", "));
  check<ConfigError>(spec.tensor.kind != PlacementKind::kPartial,
                     "{}: a parameter cannot be partial: every rank must hold its value",
                     spec.name);
  check<ConfigError>(
      spec.family == Family::kDense || spec.tensor.kind != PlacementKind::kReplicated,
      "{}: an expert parameter cannot be replicated over etp: no group sums its gradient over etp "
      "and edp",
      spec.name);
}

}  // namespace

Dtypes Dtypes::of(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return fp64();
    case Precision::kFp32:
      return fp32();
    case Precision::kBf16:
      return bf16();
  }
  return fp32();
}

Parameter::Parameter(ParameterSpec spec, const Groups& groups)
    : spec_(std::move(spec)), start_(spec_.shape.size(), 0), local_shape_(spec_.shape) {
  check_spec(spec_);
  const Mesh& mesh = groups.mesh();
  const auto cut = [&](int64_t dim, Axis axis, bool may_be_uneven) {
    const auto d = static_cast<size_t>(dim);
    const int64_t parts = mesh.size(axis);
    const int64_t full = local_shape_[d];
    check<ConfigError>(may_be_uneven ? full >= parts : full % parts == 0,
                       "{}: dim {} of size {} cannot be cut {}over {} {} ranks", spec_.name, dim,
                       full, may_be_uneven ? "" : "evenly ", parts, to_string(axis));
    const ShardRange own = shard_range(full, parts, mesh.coordinate(groups.rank(), axis));
    local_shape_[d] = own.size();
    start_[d] += own.begin;
  };
  const bool is_dense = spec_.family == Family::kDense;
  const Axis tensor_axis = is_dense ? Axis::kTensor : Axis::kExpertTensor;
  int64_t num_shards = mesh.size(Axis::kPipeline);  // ranks that hold other parameters or parts
  if (!is_dense) {
    cut(0, Axis::kExpert, false);
    num_shards *= mesh.size(Axis::kExpert);
  }
  const bool is_cut = spec_.tensor.kind == PlacementKind::kSharded;
  if (is_cut) {
    cut(spec_.tensor.dim, tensor_axis, spec_.may_be_uneven);
    num_shards *= mesh.size(tensor_axis);
  }
  num_replicas_ = mesh.world_size() / num_shards;
  // Counts along the axes over which the elements are the same, the first named slowest.
  const auto count_along = [&](Axis axis) {
    replica_index_ = replica_index_ * mesh.size(axis) + mesh.coordinate(groups.rank(), axis);
  };
  if (is_dense) {
    count_along(Axis::kData);
    count_along(Axis::kContext);
  } else {
    count_along(Axis::kExpertData);
  }
  if (!is_cut) {
    count_along(tensor_axis);
  }
  if (spec_.tensor.kind == PlacementKind::kInvariant) {
    num_gradient_groups_ = mesh.size(tensor_axis);
    gradient_group_index_ = mesh.coordinate(groups.rank(), tensor_axis);
  }
  const auto count_copies = [&](int64_t& count, int64_t& index) {
    count *= spec_.num_copies;
    index = index * spec_.num_copies + spec_.copy_index;
  };
  count_copies(num_replicas_, replica_index_);
  count_copies(num_gradient_groups_, gradient_group_index_);
}

int64_t Parameter::local_numel() const {
  return product(local_shape_);
}

GroupName Parameter::gradient_group() const {
  if (spec_.family == Family::kExpert) {
    return GroupName::kExpertData;
  }
  return spec_.tensor.kind == PlacementKind::kReplicated ? GroupName::kDataContextTensor
                                                         : GroupName::kDataContext;
}

at::Tensor Parameter::initial_values(uint64_t seed, at::ScalarType dtype) const {
  at::Tensor values = at::empty(local_shape_, dtype);
  switch (spec_.init.kind) {
    case Init::Kind::kZeros:
      return values.zero_();
    case Init::Kind::kOnes:
      return values.fill_(1);
    case Init::Kind::kNormal:
    case Init::Kind::kUniform:
    case Init::Kind::kLogOfUniform:
    case Init::Kind::kTimeStep:
    case Init::Kind::kLogOfCount:
      if (dtype == at::kDouble) {
        fill_drawn<double>(values, spec_, start_, local_shape_, seed);
      } else {
        fill_drawn<float>(values, spec_, start_, local_shape_, seed);
      }
      return values;
  }
  return values;
}

namespace {

std::vector<GradientRun> gradient_runs_of(const std::vector<Parameter>& pieces) {
  std::vector<GradientRun> runs;
  int64_t end = 0;
  for (const Parameter& piece : pieces) {
    const int64_t begin = end;
    end += piece.local_numel();
    if (!runs.empty() && runs.back().group == piece.gradient_group()) {
      runs.back().elements.end = end;
    } else {
      runs.push_back({piece.gradient_group(), {begin, end}});
    }
  }
  return runs;
}

// The elements of `kept` (flat ranges of the storage, rising), piece by piece.
std::vector<PieceRange> cut_by_piece(const std::vector<Parameter>& pieces,
                                     const std::vector<ShardRange>& kept) {
  std::vector<PieceRange> ranges;
  int64_t in_list = 0;
  int64_t end = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t begin = end;
    end += pieces[i].local_numel();
    for (const ShardRange& range : kept) {
      const ShardRange both = {std::max(range.begin, begin), std::min(range.end, end)};
      if (both.size() > 0) {
        ranges.push_back({i, {both.begin - begin, both.end - begin}, both.begin, in_list});
        in_list += both.size();
      }
    }
  }
  return ranges;
}

// A copy of the master's owned elements, end to end.
at::Tensor owned_elements(const ParameterStorage& storage) {
  at::Tensor elements = at::empty({storage.num_owned()}, storage.master.options());
  for (const PieceRange& range : storage.owned) {
    elements.narrow(0, range.in_list, range.size())
        .copy_(storage.master.view({-1}).narrow(0, range.in_storage, range.size()));
  }
  return elements;
}

bool has_group_of_several(const ParameterStorage& storage, const Groups& groups) {
  return std::any_of(storage.gradient_runs.begin(), storage.gradient_runs.end(),
                     [&](const GradientRun& run) { return groups[run.group].size() > 1; });
}

std::vector<PieceRange> shares_of(const ParameterStorage& storage, const Groups& groups) {
  std::vector<ShardRange> kept;
  for (const GradientRun& run : storage.gradient_runs) {
    const Group& group = groups[run.group];
    const ShardRange share = shard_range(run.elements.size(), group.size(), group.rank());
    kept.push_back({run.elements.begin + share.begin, run.elements.begin + share.end});
  }
  return cut_by_piece(storage.pieces, kept);
}

}  // namespace

at::Tensor ParameterStorage::piece(const at::Tensor& whole, size_t i) const {
  int64_t offset = 0;
  for (size_t before = 0; before < i; ++before) {
    offset += pieces[before].local_numel();
  }
  return whole.view({-1}).narrow(0, offset, pieces[i].local_numel()).view(pieces[i].local_shape());
}

int64_t ParameterStorage::num_owned() const {
  return owned.empty() ? 0 : owned.back().in_list + owned.back().size();
}

at::Tensor ParameterStorage::owned_of(const at::Tensor& values, const PieceRange& range) const {
  const bool is_whole = values.numel() == leaf.numel();
  return values.view({-1}).narrow(0, is_whole ? range.in_storage : range.in_list, range.size());
}

void ParameterStorage::allocate_leaf() {
  at::StorageImpl& memory = *leaf.storage().unsafeGetStorageImpl();
  const auto bytes = static_cast<size_t>(leaf.numel()) * leaf.element_size();
  memory.set_data_ptr_noswap(memory.allocator()->allocate(bytes));
  memory.set_nbytes(bytes);
}

void ParameterStorage::free_leaf() {
  at::StorageImpl& memory = *leaf.storage().unsafeGetStorageImpl();
  memory.set_data_ptr_noswap(at::DataPtr(nullptr, leaf.device()));
  memory.set_nbytes(0);
}

void ParameterStorage::absorb_gradient() {
  at::Tensor& from = leaf.mutable_grad();
  if (!from.defined()) {
    return;
  }
  if (gradient.defined()) {
    gradient.add_(from);
  } else {
    gradient = from.to(master.scalar_type()).contiguous();
  }
  from.reset();
}

void ParameterStorage::publish_master() {
  if (master.is_alias_of(leaf)) {
    return;
  }
  // Not a change in autograd's eyes: what a graph has saved of the leaf stays valid.
  const at::Tensor values = leaf.variable_data();
  for (const PieceRange& range : owned) {
    owned_of(values, range).copy_(owned_of(master, range));
  }
}

Parameters::Parameters(const Groups& groups, Dtypes dtypes, uint64_t seed, FirstValues first_values,
                       DataSharding sharding)
    : groups_(groups),
      dtypes_(dtypes),
      seed_(seed),
      first_values_(first_values),
      sharding_(sharding) {}

at::Tensor Parameters::first_values_of(const Parameter& piece) const {
  switch (first_values_) {
    case FirstValues::kInitial:
      return piece.initial_values(seed_, dtypes_.master);
    case FirstValues::kUnset:
      return at::full(piece.local_shape(), NAN, dtypes_.master);
    case FirstValues::kNone:
      break;
  }
  return at::empty(piece.local_shape(), at::TensorOptions(dtypes_.master).device(at::kMeta));
}

void Parameters::check_name_is_free(const std::string& name) const {
  for (const auto& storage : storages_) {
    for (const Parameter& piece : storage->pieces) {
      check<ConfigError>(piece.name() != name, kNameTaken, name);
    }
  }
  for (const Buffer& buffer : buffers_) {
    check<ConfigError>(buffer.name != name, kNameTaken, name);
  }
}

at::Tensor Parameters::declare(std::vector<ParameterSpec> pieces,
                               const std::vector<int64_t>& local_shape) {
  auto storage = std::make_unique<ParameterStorage>();
  std::vector<at::Tensor> values;
  for (ParameterSpec& spec : pieces) {
    check_name_is_free(spec.name);
    for (const Parameter& piece : storage->pieces) {
      check<ConfigError>(piece.name() != spec.name, kNameTaken, spec.name);
    }
    storage->pieces.emplace_back(std::move(spec), groups_);
    values.push_back(first_values_of(storage->pieces.back()).view({-1}));
  }
  const at::Tensor whole = values.size() == 1 ? values[0] : at::cat(values);
  check<ShapeError>(whole.numel() == product(local_shape),
                    "{}: {} elements on this rank do not fill a buffer of shape [{}]",
                    storage->pieces.front().name(), whole.numel(), fmt::join(local_shape, ", "));
  storage->master = whole.view(local_shape);
  const bool is_narrow = dtypes_.is_mixed() && !storage->pieces.front().spec().stays_wide;
  storage->leaf = is_narrow ? storage->master.to(dtypes_.compute) : storage->master.detach();
  storage->leaf.set_requires_grad(true);
  storage->gradient_runs = gradient_runs_of(storage->pieces);
  storage->shares = shares_of(*storage, groups_);
  storage->owned = is_sharded() ? storage->shares
                                : cut_by_piece(storage->pieces, {{0, storage->master.numel()}});
  storage->is_divided = is_sharded() && has_group_of_several(*storage, groups_);
  const bool leaf_comes_and_goes = shards_parameters() && storage->is_divided;
  if (!has_whole_masters() && (dtypes_.is_mixed() || leaf_comes_and_goes)) {
    storage->master = owned_elements(*storage);
  }
  if (leaf_comes_and_goes) {
    storage->free_leaf();
  }
  storages_.push_back(std::move(storage));
  return storages_.back()->leaf;
}

at::Tensor Parameters::declare_buffer(const std::string& name, const std::vector<int64_t>& shape) {
  check_name_is_free(name);
  buffers_.push_back({name, at::zeros(shape, dtypes_.master)});
  return buffers_.back().tensor;
}

bool Parameters::hold(const at::Tensor& tensor) const {
  return std::any_of(storages_.begin(), storages_.end(),
                     [&](const auto& storage) { return tensor.is_alias_of(storage->leaf); });
}

int64_t Parameters::logical_numel() const {
  int64_t total = 0;
  for (const auto& storage : storages_) {
    for (const Parameter& piece : storage->pieces) {
      total += piece.spec().copy_index == 0 ? product(piece.spec().shape) : 0;
    }
  }
  return total;
}

Scope Scope::operator/(const std::string& child) const {
  return {parameters, name(child)};
}

std::string Scope::name(const std::string& leaf) const {
  return prefix.empty() ? leaf : prefix + "." + leaf;
}

}  // namespace switchyard
