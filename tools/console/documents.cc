#include "tools/console/documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <intact/intact.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "support/origin.h"

namespace intact::tools {
namespace {

using support::ShellQuoted;
using Strings = std::vector<std::string>;

/// A program or one of its subcommands, at any depth.
struct Node {
  const CLI::App* app;
  Strings path;  // the program's name first

  std::string Name() const { return fmt::format("{}", fmt::join(path, " ")); }

  std::vector<const CLI::Option*> Options() const {
    return app->get_options(
        [](const CLI::Option* option) { return !option->get_group().empty() && option->nonpositional(); });
  }
  std::vector<const CLI::Option*> Positionals() const {
    return app->get_options([](const CLI::Option* option) { return option->get_positional(); });
  }
  std::vector<const CLI::App*> Children() const {
    return app->get_subcommands([](const CLI::App*) { return true; });
  }
  Strings ChildNames() const {
    Strings names;
    for (const CLI::App* child : Children()) names.push_back(child->get_name());
    return names;
  }
};

void Collect(const Node& node, std::vector<Node>* nodes) {
  nodes->push_back(node);
  for (const CLI::App* child : node.Children()) {
    Node next = {child, node.path};
    next.path.push_back(child->get_name());
    Collect(next, nodes);
  }
}

/// The program and all its subcommands, at any depth.
std::vector<Node> Nodes(const CLI::App& app) {
  std::vector<Node> nodes;
  Collect({&app, {app.get_name()}}, &nodes);
  return nodes;
}

/// "--name" or "-n", as users type them.
Strings Names(const CLI::Option& option) {
  Strings names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// The text of a check, else the type, else the name.
std::string TypeOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.empty() ? option.get_single_name() : type.substr(type.rfind(':') + 1);
}

/// The option's values; empty if its type does not list them.
Strings Choices(const CLI::Option& option) {
  const std::string type = TypeOf(option);
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

bool IsFile(const CLI::Option& option) {
  return TypeOf(option) == "FILE" || TypeOf(option) == "TARGET";  // a file, or a peer's name
}
bool IsFolder(const CLI::Option& option) { return TypeOf(option) == "DIR"; }

std::string Replaced(std::string_view text, const std::map<char, std::string_view>& replacements) {
  std::string result;
  for (const char each : text) {
    const auto found = replacements.find(each);
    if (found == replacements.end()) {
      result += each;
    } else {
      result += found->second;
    }
  }
  return result;
}

// ---- The manual page, in roff's man macros.

/// Escapes text so that roff prints it unchanged.
std::string Roff(std::string_view text) {
  const std::string escaped = Replaced(text, {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}});
  return escaped.starts_with('.') ? "\\&" + escaped : escaped;
}
std::string Bold(std::string_view text) { return "\\fB" + Roff(text) + "\\fR"; }
std::string Italic(std::string_view text) { return "\\fI" + Roff(text) + "\\fR"; }

/// An item of a list: "  term  meaning".
std::string RoffItem(std::string_view line) {
  const size_t term = line.find_first_not_of(' ');
  const size_t space = line.find(' ', term);
  const size_t meaning = line.find_first_not_of(' ', space);
  return fmt::format(".TP\n{}\n{}\n", Bold(line.substr(term, space - term)), Roff(line.substr(meaning)));
}

/// Paragraphs and lists; `section` is the macro that a title becomes.
std::string RoffText(std::string_view text, std::string_view section) {
  std::string page;
  bool is_paragraph_due = false;  // not before a title, which starts a new one
  for (const std::string& line : CLI::detail::split(std::string(text), '\n')) {
    if (line.empty()) {
      is_paragraph_due = true;
      continue;
    }
    if (line.ends_with(':')) {
      std::string title = line.substr(0, line.size() - 1);
      std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
      page += fmt::format("{} {}\n", section, Roff(title));
    } else {
      if (is_paragraph_due) page += ".PP\n";
      page += line.starts_with(' ') ? RoffItem(line) : Roff(line) + "\n";
    }
    is_paragraph_due = false;
  }
  return page;
}

std::string RoffOption(const CLI::Option& option) {
  Strings names;
  for (const std::string& name : Names(option)) names.push_back(Bold(name));
  std::string term = fmt::format("{}", fmt::join(names, ", "));
  const Strings choices = Choices(option);
  if (option.get_positional()) {
    term = Italic(option.get_single_name());
  } else if (!choices.empty()) {
    term += " " + Italic(fmt::format("{}", fmt::join(choices, "|")));
  } else if (TakesValue(option)) {
    term += " " + Italic(TypeOf(option));
  }
  std::string meaning = option.get_description();
  if (!option.get_default_str().empty()) meaning += fmt::format(" (default: {})", option.get_default_str());
  return fmt::format(".TP\n{}\n{}\n", term, Roff(meaning));
}

std::string RoffOptions(const Node& node) {
  std::string page;
  for (const CLI::Option* option : node.Positionals()) page += RoffOption(*option);
  for (const CLI::Option* option : node.Options()) page += RoffOption(*option);
  return page;
}

std::string Synopsis(const Node& node) {
  std::string line = Bold(node.Name()) + " [" + Italic("OPTION") + "...]";
  for (const CLI::Option* option : node.Positionals()) {
    std::string name = Italic(option->get_single_name());
    if (option->get_items_expected_max() > 1) name += "...";
    line += option->get_required() ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string ManualPage(const CLI::App& app) {
  const std::vector<Node> nodes = Nodes(app);
  const std::string description = app.get_description();
  const size_t paragraph = description.find("\n\n");
  std::string summary = description.substr(0, paragraph);
  if (summary.ends_with('.')) summary.pop_back();

  std::string page = fmt::format(".TH {} 1 \"\" \"intact {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                                 Roff(app.get_name()), intact_version(), Roff(app.get_name()), Roff(summary));
  page += ".SH SYNOPSIS\n";
  std::string_view separator;
  for (const Node& node : nodes) {
    if (node.path.size() == 1 && nodes.size() > 1) continue;  // it needs a subcommand
    page += fmt::format("{}{}\n", separator, Synopsis(node));
    separator = ".br\n";
  }
  if (paragraph != std::string::npos) {
    page += ".SH DESCRIPTION\n" + RoffText(description.substr(paragraph + 2), ".SS");
  }
  page += ".SH OPTIONS\n" + RoffOptions(nodes.front());
  if (nodes.size() > 1) page += ".SH COMMANDS\n";
  for (const Node& node : nodes) {
    if (node.path.size() == 1) continue;
    page += fmt::format(".SS {}\n{}\n{}", Roff(node.Name()), Roff(node.app->get_description()),
                        RoffOptions(node));
  }
  return page + RoffText(app.get_footer(), ".SH");
}

// ---- Completions.

/// A shell pattern of the command lines that end in a subcommand, with the program's name.
std::string CommandPattern(const std::vector<Node>& nodes) {
  Strings names;
  for (const Node& node : nodes) names.push_back(support::ShellQuoted(node.Name()));
  if (names.size() > 1) names.erase(names.begin());
  return fmt::format("{}", fmt::join(names, " | "));
}

std::string Bash(const CLI::App& app) {
  const std::vector<Node> nodes = Nodes(app);
  std::string values, words;
  for (const Node& node : nodes) {
    Strings all = node.ChildNames();
    for (const CLI::Option* option : node.Options()) {
      const Strings names = Names(*option);
      all.insert(all.end(), names.begin(), names.end());
      if (!TakesValue(*option)) continue;
      const Strings choices = Choices(*option);
      for (const std::string& name : names) {
        values += fmt::format("    {})", support::ShellQuoted(node.Name() + " " + name));
        if (!choices.empty()) {
          values +=
              fmt::format(" words={} ;;\n", support::ShellQuoted(fmt::format("{}", fmt::join(choices, " "))));
        } else {
          values += fmt::format(" names={} ;;\n", IsFile(*option) ? "-f" : IsFolder(*option) ? "-d" : "none");
        }
      }
    }
    const std::vector<const CLI::Option*> positionals = node.Positionals();
    words += fmt::format("    {}) words={}", support::ShellQuoted(node.Name()),
                         support::ShellQuoted(fmt::format("{}", fmt::join(all, " "))));
    if (!positionals.empty()) {
      words += fmt::format(" names={}", IsFile(*positionals.front())     ? "-f"
                                        : IsFolder(*positionals.front()) ? "-d"
                                                                         : "none");
    }
    words += " ;;\n";
  }
  return fmt::format(R"(# bash completion of {0}, written by `{0} --document bash`.
_{0}() {{
  local command={0} current=$2 previous=$3 words='' names='' i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
      {1}) command+=" ${{COMP_WORDS[i]}}" ;;
    esac
  done
  # --option=value is three words to bash.
  if [[ $current == = ]]; then
    current=''
  elif [[ $previous == = ]]; then
    previous=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  case "$command $previous" in
{2}  esac
  if [[ -z $words$names ]]; then
    case $command in
{3}    esac
    [[ -z $names || $current == -* ]] && names='' || words=''
  fi
  COMPREPLY=()
  if [[ $names == -? ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$names" -- "$current")
  elif [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}}
complete -F _{0} {0}
)",
                     app.get_name(), CommandPattern(nodes), values, words);
}

/// What _arguments completes a value with.
std::string ZshAction(const CLI::Option& option) {
  const Strings choices = Choices(option);
  if (!choices.empty()) return fmt::format("({})", fmt::join(choices, " "));
  return IsFile(option) ? "_files" : IsFolder(option) ? "_files -/" : " ";
}

std::string Zsh(const CLI::App& app) {
  const std::vector<Node> nodes = Nodes(app);
  const std::map<char, std::string_view> special = {{'[', "\\["}, {']', "\\]"}, {':', "\\:"}, {'\\', "\\\\"}};
  std::string cases;
  for (const Node& node : nodes) {
    cases += fmt::format("    {})\n      _arguments", support::ShellQuoted(node.Name()));
    for (const CLI::Option* option : node.Options()) {
      for (const std::string& name : Names(*option)) {
        std::string argument =
            fmt::format("{}[{}]", TakesValue(*option) && name.starts_with("--") ? name + "=" : name,
                        Replaced(option->get_description(), special));
        if (TakesValue(*option)) argument += fmt::format(":{}:{}", name.substr(2), ZshAction(*option));
        cases += " \\\n        " + support::ShellQuoted(argument);
      }
    }
    for (const CLI::Option* option : node.Positionals()) {
      const bool is_list = option->get_items_expected_max() > 1;
      cases +=
          " \\\n        " + support::ShellQuoted(fmt::format("{}:{}:{}", is_list ? "*" : "",
                                                             option->get_single_name(), ZshAction(*option)));
    }
    if (const Strings children = node.ChildNames(); !children.empty()) {
      Strings described;
      for (const CLI::App* child : node.Children()) {
        const std::string meaning = Replaced(child->get_description(), {{'"', ""}, {':', "\\:"}, {'$', ""}});
        described.push_back(fmt::format(R"({}\:"{}")", child->get_name(), meaning));
      }
      cases +=
          " \\\n        " + support::ShellQuoted(fmt::format("1:command:(({}))", fmt::join(described, " ")));
    }
    cases += " ;;\n";
  }
  return fmt::format(R"(#compdef {0}
# zsh completion of {0}, written by `{0} --document zsh`.
_{0}() {{
  local command={0}
  while ((CURRENT > 2)); do
    case "$command $words[2]" in
      {1})
        command+=" $words[2]"
        shift words
        ((--CURRENT)) ;;
      *) break ;;
    esac
  done
  case $command in
{2}  esac
}}
_{0} "$@"
)",
                     app.get_name(), CommandPattern(nodes), cases);
}

std::string Fish(const CLI::App& app) {
  std::string script = fmt::format(
      "# fish completion of {0}, written by `{0} --document fish`.\ncomplete -c {0} -f\n", app.get_name());
  for (const Node& node : Nodes(app)) {
    Strings conditions;
    for (size_t i = 1; i < node.path.size(); ++i) {
      conditions.push_back("__fish_seen_subcommand_from " + node.path[i]);
    }
    const Strings children = node.ChildNames();
    if (!children.empty()) {
      conditions.push_back(fmt::format("not __fish_seen_subcommand_from {}", fmt::join(children, " ")));
    }
    std::string complete = "complete -c " + app.get_name();
    if (!conditions.empty())
      complete += " -n " + support::ShellQuoted(fmt::format("{}", fmt::join(conditions, "; and ")));
    for (const CLI::App* child : node.Children()) {
      script += fmt::format("{} -a {} -d {}\n", complete, child->get_name(),
                            support::ShellQuoted(child->get_description()));
    }
    for (const CLI::Option* option : node.Options()) {
      script += complete;
      for (const std::string& name : option->get_snames()) script += " -s " + name;
      for (const std::string& name : option->get_lnames()) script += " -l " + name;
      const Strings choices = Choices(*option);
      if (!choices.empty()) {
        script += " -x -a " + support::ShellQuoted(fmt::format("{}", fmt::join(choices, " ")));
      } else if (IsFolder(*option)) {
        script += " -x -a '(__fish_complete_directories)'";
      } else if (TakesValue(*option)) {
        script += IsFile(*option) ? " -r -F" : " -x";
      }
      script += " -d " + support::ShellQuoted(option->get_description()) + "\n";
    }
    if (std::ranges::any_of(node.Positionals(),
                            [](const CLI::Option* each) { return IsFile(*each) || IsFolder(*each); })) {
      script += complete + " -F\n";
    }
  }
  return script;
}

}  // namespace

void AddDocumentOption(CLI::App* app) {
  using Writer = std::string (*)(const CLI::App&);
  static const std::map<std::string, Writer> kWriters = {
      {"man", ManualPage}, {"bash", Bash}, {"zsh", Zsh}, {"fish", Fish}};
  app->add_option_function<std::string>("--document",
                                        [app](const std::string& kind) {
                                          const std::string text = kWriters.at(kind)(*app);
                                          // Printed unchanged, whatever the terminal.
                                          std::fwrite(text.data(), 1, text.size(), stdout);
                                          throw CLI::Success();
                                        })
      ->check(CLI::IsMember(&kWriters))
      ->group("")
      ->trigger_on_parse();
}

}  // namespace intact::tools
