#include "survive/roster.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::survive {

namespace fs = std::filesystem;
using base::text;

namespace {

constexpr const char* kRosterSchema = "sluice.members/1";

fs::path roster_path(const fs::path& run_directory) { return run_directory / "members.json"; }

}  // namespace

void write_roster(const fs::path& run_directory, const WorkerContext& worker_context) {
  base::Json json{{"schema", kRosterSchema},
                  {"run", worker_context.key.run},
                  {"ranks", worker_context.key.world_size},
                  {"members", base::Json::array()}};
  for (const membership::Member& member : worker_context.membership.members)
    json["members"].push_back(membership::to_json(member));
  base::write_json(roster_path(run_directory), json);
}

Roster read_roster(const fs::path& run_directory) {
  const fs::path path = roster_path(run_directory);
  if (!fs::exists(path)) {
    throw base::InputError(text("no run that can be joined is under way in ", run_directory.string(), ": ",
                                path.string(),
                                " is missing; elastic runs of torchrun, MPI, Slurm or by hand write it"));
  }
  const base::Json json = base::read_json(path);
  const std::string name = path.string();
  base::require_schema(json, kRosterSchema, name);
  Roster roster{.run = base::require<std::string>(json, "run", name),
                .world_size = base::require<int>(json, "ranks", name)};
  for (const base::Json& member : base::require<base::Json>(json, "members", name))
    roster.members.push_back(membership::member_from_json(member, name));
  return roster;
}

}  // namespace sluice::survive
