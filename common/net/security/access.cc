#include "common/net/security/access.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/core/files.h"
#include "common/core/status.h"
#include "common/flags/flag_table.h"
#include "common/net/security/tls.h"

namespace cairn::net {
namespace {

// Checks that the token can be sent as the value of a header. `where`: "--job_token_file: /run/token".
absl::StatusOr<std::string> CheckedToken(absl::string_view text, const std::string& where) {
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", what...));
  };
  if (token.size() < kMinTokenCharacters || token.size() > kMaxTokenCharacters) {
    return refuse("a job token has ", kMinTokenCharacters, " to ", kMaxTokenCharacters,
                  " characters, this one ", token.size(), "; `openssl rand -hex 32` makes a good one");
  }
  if (!std::all_of(token.begin(), token.end(), absl::ascii_isgraph)) {
    return refuse("a job token is one line of printable ASCII characters without spaces");
  }
  return std::string(token);
}

}  // namespace

void AddAccessFlags(CLI::App& app, Access& access) {
  AddTlsFlags(app, access.tls);
  AddFlags(
      app, "Authentication",
      {{"--job_token_file FILE", &access.token_file,
        "File with the job token, the same for all tasks; servers reject clients without it [environment "
        "variable CAIRN_JOB_TOKEN]"}});
}

absl::Status CheckAccess(Access& access, const char* environment) {
  CAIRN_RETURN_IF_ERROR(CheckTlsFiles(access.tls));
  if (!access.token_file.empty()) {
    const auto contents = ReadFile(access.token_file);  // its error names the path
    if (!contents.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--job_token_file: ", contents.status().message()));
    }
    CAIRN_ASSIGN_OR_RETURN(access.token,
                           CheckedToken(*contents, absl::StrCat("--job_token_file: ", access.token_file)));
  } else if (environment != nullptr && *environment != '\0') {
    CAIRN_ASSIGN_OR_RETURN(access.token, CheckedToken(environment, kTokenVariable));
  }
  return absl::OkStatus();
}

Credentials CredentialsOf(const Access& access) {
  return {ChannelCredentialsOf(access.tls), access.token};
}

}  // namespace cairn::net
