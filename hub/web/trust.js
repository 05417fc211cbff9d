// The page that leads through trusting the hub's authority: language, platform, fingerprint, names.

const root = document.documentElement;

function choose(language) {
  root.dataset.lang = language;
  root.lang = language;
  for (const button of document.querySelectorAll("[data-choose]")) {
    button.setAttribute("aria-pressed", String(button.dataset.choose === language));
  }
}

function platform() {
  const agent = navigator.userAgent;
  // An iPad calls itself a Mac; no Mac has a touch screen.
  if (/iPhone|iPad|iPod/.test(agent) || (/Macintosh/.test(agent) && navigator.maxTouchPoints > 1)) return "ios";
  if (/Android/.test(agent)) return "android";
  if (/Macintosh/.test(agent)) return "mac";
  if (/Windows/.test(agent)) return "windows";
  return "linux";
}

async function describe() {
  const answer = await fetch("/trust/authority.json");
  if (!answer.ok) return;
  const { name, fingerprint, names } = await answer.json();
  for (const place of document.querySelectorAll("[data-name]")) place.textContent = name;
  for (const place of document.querySelectorAll("[data-fingerprint]")) place.textContent = fingerprint;
  const port = location.port ? `:${location.port}` : "";
  for (const list of document.querySelectorAll("[data-names]")) {
    for (const host of names) {
      const address = `https://${host.includes(":") ? `[${host}]` : host}${port}/`;
      const link = document.createElement("a");
      link.href = address;
      link.textContent = address;
      const item = document.createElement("li");
      item.append(link);
      list.append(item);
    }
  }
}

for (const button of document.querySelectorAll("[data-choose]")) {
  button.addEventListener("click", () => choose(button.dataset.choose));
}
choose(navigator.languages.some((l) => l.startsWith("zh")) && !navigator.language.startsWith("en") ? "zh" : "en");
for (const section of document.querySelectorAll(`[data-platform="${platform()}"]`)) section.open = true;
describe();
