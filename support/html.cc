#include "support/html.h"

#include <fmt/format.h>

#include <array>
#include <intact/intact.hpp>

#include "support/plot.h"
#include "support/printable.h"

namespace intact::support::html {
namespace {

// Pictures are drawn for white pages. For dark pages, a filter inverts them and keeps their hues.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1b1f24; --faint: #4a525c; --page: #fff; --line: #e2e5e9;
        --good: #116329; --doubtful: #7a4d00; --bad: #a40e26; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --faint: #a4adb8; --page: #14181d; --line: #343b44;
          --good: #5fce7e; --doubtful: #e0b354; --bad: #ff8795; }
  figure svg { filter: invert(.92) hue-rotate(180deg); }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
       padding: 1rem; max-width: 62rem; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; }
.wide, figure { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; overflow-wrap: normal; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; vertical-align: top;
         border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--page); }
.number { text-align: right; font-variant-numeric: tabular-nums; } td.number { white-space: nowrap; }
.filter { margin: .6rem 0; } .filter input { font: inherit; width: min(24rem, 100%); box-sizing: border-box;
  color: inherit; background: var(--page); border: 1px solid var(--line); padding: .2rem .5rem; }
.beside { display: flex; flex-wrap: wrap; gap: 1rem; } .beside section { flex: 1 1 26rem; min-width: 0; }
figure { margin: 1rem 0; } figure svg { width: 100%; height: auto; }
figcaption, .note { color: var(--faint); font-size: .92rem; }
.good { color: var(--good); } .doubtful { color: var(--doubtful); } .bad { color: var(--bad); }
.good, .doubtful, .bad { font-weight: 600; }
code { font-size: .88em; overflow-wrap: anywhere; }
)";

constexpr std::string_view kFilterScript = R"(
for (const field of document.querySelectorAll('input[data-table]')) {
  const rows = [...document.querySelectorAll('#' + field.dataset.table + ' tr')].slice(1);
  const texts = rows.map(row => row.textContent.toLowerCase());
  const most = 500;
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(word => word);
    let found = 0;
    rows.forEach((row, i) => {
      const matches = words.every(word => texts[i].includes(word));
      if (matches) ++found;
      row.hidden = !matches || found > most;
    });
    field.parentElement.nextElementSibling.textContent =
        Math.min(found, most) + ' of ' + rows.length + ' shown' + (found > most ? '; ' + found + ' match' : '');
  };
  field.addEventListener('input', show);
  show();
}
)";

constexpr std::array<std::string_view, 4> kClasses = {"", "good", "doubtful", "bad"};  // by Tone

std::string Toned(Tone tone, std::string_view html) {
  if (tone == Tone::kPlain) return std::string(html);
  return fmt::format("<span class=\"{}\">{}</span>", kClasses[static_cast<size_t>(tone)], html);
}

}  // namespace

std::string Page(std::string_view title, const Origin& origin, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n"
      "<p class=\"note\">{2} · <code>{3}</code></p>\n{4}<script>{5}</script>\n</body>\n</html>\n",
      Escape(title), kStyle, Escape(origin.date), Escape(Printable(origin.command)), body, kFilterScript);
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
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, i >= first_number ? " class=\"number\"" : "",
                          Toned(row[i].tone, Escape(row[i].text)));
    }
    return text + "</tr>\n";
  };
  std::string table = "<div class=\"wide\" tabindex=\"0\"><table>\n";
  if (!head.empty()) table += cells(head, "th");
  for (const Row& row : rows) table += cells(row, "td");
  return table + "</table></div>\n";
}

std::string FilteredTable(std::string_view id, const Row& head, const std::vector<Row>& rows) {
  return fmt::format(
      "<p class=\"filter\"><label>Search <input type=\"search\" data-table=\"{0}\"></label> "
      "<span class=\"note\"></span></p>\n<div id=\"{0}\">{1}</div>\n",
      id, Table(head, rows, head.size()));
}

std::string Figure(std::string_view name, const std::string& commands, std::string_view caption) {
  const Result<std::string> svg = PlotSvg(name, commands);
  return fmt::format("<figure>{}<figcaption>{}</figcaption></figure>\n",
                     svg ? *svg : "<p class=\"note\">No picture: " + Escape(svg.error().message) + ".</p>",
                     caption);
}

std::string Judged(bool good, std::string_view yes, std::string_view no) {
  return Toned(good ? Tone::kGood : Tone::kBad, good ? yes : no);
}

}  // namespace intact::support::html
