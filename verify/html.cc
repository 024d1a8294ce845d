#include "verify/html.h"

#include <fmt/format.h>

#include <intact/intact.hpp>

#include "verify/plot.h"

namespace intact::verify::html {
namespace {

constexpr std::string_view kStyle = R"(
body { font: 16px/1.5 system-ui, sans-serif; color: #1b1f24; background: #fff; margin: 0 auto; padding: 1rem;
       max-width: 62rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .92rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid #e2e5e9; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; }
figcaption, .note { color: #4a525c; font-size: .92rem; }
.good { color: #116329; font-weight: 600; } .bad { color: #a40e26; font-weight: 600; }
code { font-size: .88em; overflow-wrap: anywhere; }
)";

}  // namespace

std::string Page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n{2}</body>\n</html>\n",
      Escape(title), kStyle, body);
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string Table(const Row& head, const std::vector<Row>& rows, size_t first_number) {
  const auto cells = [&](const Row& row, std::string_view tag) {
    std::string text = "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      text +=
          fmt::format("<{0}{1}>{2}</{0}>", tag, i >= first_number ? " class=\"number\"" : "", Escape(row[i]));
    }
    return text + "</tr>\n";
  };
  std::string table = "<table>\n" + cells(head, "th");
  for (const Row& row : rows) table += cells(row, "td");
  return table + "</table>\n";
}

std::string Figure(std::string_view name, const std::string& commands, std::string_view caption) {
  const Result<std::string> svg = PlotSvg(name, commands);
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n",
                     svg ? *svg : "<p class=\"note\">No picture: " + Escape(svg.error().message) + ".</p>",
                     caption);
}

std::string Judged(bool good, std::string_view yes, std::string_view no) {
  return fmt::format("<span class=\"{}\">{}</span>", good ? "good" : "bad", good ? yes : no);
}

}  // namespace intact::verify::html
