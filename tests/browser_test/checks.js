// Appended to a report by browser_test.sh, after `scheme`, 'dark' or 'light': writes "all right", or what is not, into the page.
window.onerror = message => problems.push('script: ' + message);
const problems = [];

// Lightness of a colour as the browser computed it, 0 to 1.
const lightness = colour => {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
};
const expect = (condition, what) => { if (!condition) problems.push(what); };

expect(document.documentElement.scrollWidth <= innerWidth, 'the page is wider than its window');
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
expect(dark === (scheme === 'dark'), 'the browser ignores the requested colour scheme');
const style = getComputedStyle(document.body);
expect((lightness(style.backgroundColor) < 0.5) === dark, 'the page does not follow the colour scheme');
for (const element of document.querySelectorAll('body, td, th, .note, .good, .bad, .doubtful, input')) {
  const contrast = Math.abs(lightness(getComputedStyle(element).color) - lightness(style.backgroundColor));
  expect(contrast > 0.35, 'too little contrast: ' + element.textContent.slice(0, 40));
}
expect(document.querySelectorAll('figure svg').length + document.querySelectorAll('figure .note').length > 0,
       'no pictures, nor why there are none');
expect(!document.querySelector('link, img[src^="http"], script[src]'), 'the page needs other files');

const shown = id => [...document.querySelectorAll('#' + id + ' tr')].slice(1).filter(row => !row.hidden);
const field = document.querySelector('input[data-table=failures]');
expect(field !== null, 'no field to search failures');
const search = text => {
  field.value = text;
  const begin = performance.now();
  field.dispatchEvent(new Event('input'));
  return performance.now() - begin;
};
const all = document.querySelectorAll('#failures tr').length - 1;
expect(shown('failures').length === Math.min(all, 500), 'not all failures, nor 500 of them, are shown');
expect(search('SIGSEGV address') < 2000, 'searching takes two seconds');
expect(shown('failures').length > 0 && shown('failures').every(row => /SIGSEGV/.test(row.textContent)),
       'searching for SIGSEGV shows other rows, or none');
search('nothing has these words');
expect(shown('failures').length === 0, 'searching for what is not there shows rows');
search('');
expect(shown('failures').length === Math.min(all, 500), 'an empty search does not show all');

const output = document.createElement('output');
output.id = 'checks';
output.textContent = problems.length ? problems.slice(0, 5).join('; ') : 'all right';
document.body.append(output);
