#include "serve/responses.h"

#include "base/error.h"
#include "base/json.h"
#include "serve/api.h"
#include "serve/request_engine.h"
#include "serve/request_fields.h"

namespace sluice::serve {

Response json_response(int status, const base::Json& json) {
  return {.status = status, .body = base::json_text(json)};
}

Response invalid_request(int status, const std::string& message, const std::string& code) {
  return json_response(status, error_json(message, "invalid_request_error", "", code));
}

Response retry_later(const std::string& message, const char* seconds, const char* type) {
  Response told = json_response(503, error_json(message, type));
  told.fields.emplace_back("Retry-After", seconds);
  return told;
}

Response overloaded() { return retry_later("too many texts wait: ask again later", "1", "overloaded_error"); }

Response fault_response(const std::exception_ptr& fault,
                        const std::function<void(const std::string&)>& failed) {
  try {
    std::rethrow_exception(fault);
  } catch (const UnknownModel& error) {
    return json_response(404,
                         error_json(error.what(), "invalid_request_error", error.field(), "model_not_found"));
  } catch (const http::FieldError& error) {
    return json_response(400, error_json(error.what(), "invalid_request_error", error.field()));
  } catch (const base::InputError& error) {
    return invalid_request(400, error.what());
  } catch (const Unavailable& error) {
    return retry_later(error.what(), "5");
  } catch (const std::exception& error) {
    failed(error.what());
    return json_response(500, error_json(error.what(), "server_error"));
  }
}

}  // namespace sluice::serve
