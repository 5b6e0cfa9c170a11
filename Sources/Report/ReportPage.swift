import BindruneToolbox
import BindruneWire

/// # ReportPage
/// **Overview**: puts the style, the data and the script into one HTML document that needs nothing else.
///
/// **Function**: the document's policy permits only its own style and script, by their hashes: should octets of a trace
/// ever become markup, a browser would not run them. The data is JSON in an element that is not executed, and no string
/// in it can end the element. The script makes elements and texts, never markup.
enum ReportPage {
  private static let scripts = [
    PackageResources.model_js, PackageResources.dom_js, PackageResources.sequence_js, PackageResources.detail_js,
    PackageResources.timeline_js, PackageResources.views_js, PackageResources.main_js,
  ]

  static func document(_ json: [UInt8], title: String) -> [UInt8] {
    let script = Array(scripts.joined()), style = PackageResources.page_css
    var page: [UInt8] = []
    page.reserveCapacity(json.count + script.count + style.count + 4_096)
    func add(_ text: String) { page.append(contentsOf: text.utf8) }
    add("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
    add("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ")
    add("style-src '\(source(style))'; script-src '\(source(script))'; ")
    add("base-uri 'none'; form-action 'none'\">\n")
    add("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")
    add("<meta name=\"color-scheme\" content=\"light dark\">\n")
    add("<title>\(escaped(title.printable(limit: 200)))</title>\n<style>")
    page += style
    add("</style>\n</head>\n<body>\n")
    page += PackageResources.page_html
    add("<script type=\"application/json\" id=\"data\">")
    page += json
    add("</script>\n<script>")
    page += script
    add("</script>\n</body>\n</html>\n")
    return page
  }

  /// A source of Content Security Policy, Level 3, §2.3.1.
  private static func source(_ octets: [UInt8]) -> String {
    "sha256-" + String(decoding: base64(sha256(octets.span)), as: UTF8.self)
  }
  private static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "<": result += "&lt;"
      case ">": result += "&gt;"
      case "&": result += "&amp;"
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }
}
