#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

struct ParallelConfig;

// Axes of the rank grid. The same ranks are folded twice (MoE parallel folding, arXiv:2504.14960):
//   attention and dense layers:  pipeline x data x context x tensor
//   expert layers:               pipeline x expert data x expert x expert tensor
// with data * context * tensor = expert data * expert * expert tensor.
enum class Axis {
  kTensor,
  kContext,
  kData,
  kPipeline,
  kExpertTensor,
  kExpert,
  kExpertData,
};

// A set of ranks that communicate: those that differ only along the named axes of one folding.
enum class GroupName {
  kWorld,
  kTensor,              // tp
  kContext,             // cp
  kData,                // dp
  kDataContext,         // dp x cp: the ranks that hold the same dense parameters
  kDataContextTensor,   // all ranks of one pipeline stage
  kPipeline,            // pp
  kExpertTensor,        // etp
  kExpert,              // ep
  kExpertExpertTensor,  // ep x etp: the ranks that share one copy of the experts
  kExpertData,          // edp: the ranks that hold the same expert parameters
};
constexpr int kNumGroupNames = 11;

std::string_view to_string(Axis axis);
std::string_view to_string(GroupName name);

struct MeshShape {
  int64_t world_size = 1;
  int64_t tensor = 1;
  int64_t context = 1;
  int64_t pipeline = 1;
  int64_t expert = 1;
  int64_t expert_tensor = 1;
  // Axes of both foldings from the fastest varying to the slowest. The dense folding skips "ep",
  // the expert one skips "cp" and reads "tp" as expert tensor and "dp" as expert data.
  std::string order = "tp-cp-ep-dp-pp";
  // Ranks per machine in the order of ranks, where that is declared; 0: as the launcher says.
  int64_t ranks_per_node = 0;
};

// The shape that the settings ask for, of that many ranks; checked by Mesh. Not collective.
MeshShape mesh_shape(const ParallelConfig& parallel, int64_t num_ranks);

// Pure arithmetic on ranks; nothing communicates here.
class Mesh {
 public:
  // Throws ConfigError when the sizes do not multiply to the world size, when `order` does not name
  // each of tp, cp, ep, dp, pp once, or when the two foldings disagree on the pipeline stages.
  explicit Mesh(const MeshShape& shape);

  int64_t world_size() const { return shape_.world_size; }
  // The machine of each rank where ranks_per_node declares it, numbered from 0; else all 0.
  std::vector<int64_t> declared_nodes() const;
  int64_t size(Axis axis) const;
  int64_t size(GroupName name) const;
  int64_t coordinate(int64_t rank, Axis axis) const;

  // Members of the group that contains `rank`, in rising order of rank.
  std::vector<int64_t> members(int64_t rank, GroupName name) const;

  // "tp 1 dp 0 ep 2": the axes longer than 1, for messages.
  std::string describe(int64_t rank) const;

 private:
  struct Extent {
    Axis axis;
    int64_t size;
    int64_t stride;
  };
  using Folding = std::vector<Extent>;

  const Folding& folding_of(Axis axis) const;
  static int64_t coordinate_in(const Folding& folding, int64_t rank, Axis axis);

  MeshShape shape_;
  Folding dense_;
  Folding expert_;
};

}  // namespace switchyard
